"""Trains an upscaler.

    python -m upscale.train --bundle data/photographs.zip --scale 2 --size standard --steps 60000 --out runs/x2

The schedule is counted in steps, and every batch follows from the seed and
its step: a run that was stopped (--stop-after) and resumed makes the same
model as one that was not. Loss is on the patch without the pixels that lack
neighbours. checkpoint.pt holds everything; curve.csv the quality on the
photographs for validation, which are not the held-out ones.
"""

import argparse
import copy
import csv
import math
import pathlib
import time

import torch

from . import data, network


def charbonnier(difference):
    return (difference.square() + 1e-6).sqrt().mean()


def luma(rgb):
    """BT.601 luma in 16..235, of RGB in 0..1."""
    r, g, b = rgb.unbind(1)
    return 16 + 65.481 * r + 128.553 * g + 24.966 * b


@torch.no_grad()
def validate(model, pairs, border):
    """Mean PSNR-Y of the model and of its bicubic anchor."""
    scores = []
    for small, large in pairs:
        edge = slice(border, -border)
        enlarged = model(small).clamp(0, 1)[..., edge, edge]
        anchor = torch.nn.functional.pixel_shuffle(
            torch.nn.functional.conv2d(small, model.anchor, padding=2), model.scale
        ).clamp(0, 1)[..., edge, edge]
        truth = luma(large[..., edge, edge])
        for guess in (enlarged, anchor):
            errors = (luma(guess) - truth).square().mean((1, 2))
            scores.append((10 * torch.log10(255**2 / errors.clamp_min(1e-6))).mean().item())
    return sum(scores[0::2]) / len(pairs), sum(scores[1::2]) / len(pairs)


def rate(step, steps, top):
    """Warm-up, then a cosine down to a hundredth; steps is 0 while it is not known."""
    share = step / steps if steps else 0
    return top * min(1, (step + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--scale", type=int, choices=(2, 4), required=True)
    parser.add_argument("--size", choices=("fast", "standard"), default="standard")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, default=0)
    length.add_argument("--seconds", type=float, help="instead of steps: as many as fit, by the speed of the first 300")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--patch", type=int, default=48, help="side of the small pictures")
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-copyleft", action="store_true")
    parser.add_argument("--initial", type=pathlib.Path, help="checkpoint to take all layers from that have the same shape")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds, then checkpoint and end")
    parser.add_argument("--every", type=float, default=60, help="seconds between checkpoints")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--fonts", type=pathlib.Path, default=pathlib.Path("/usr/share/fonts/truetype"))
    parser.add_argument("--limit", type=int, help="number of photographs, for a trial")
    return parser.parse_args()


def main():
    arguments = parse()
    started = time.monotonic()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = torch.device(arguments.device)
    arguments.out.mkdir(parents=True, exist_ok=True)

    fonts = sorted(arguments.fonts.rglob("*.ttf"))
    copyleft = not arguments.without_copyleft
    pool, odds = data.tiles(
        arguments.bundle, ("train", "upscale"), copyleft, fonts, 40 if fonts else 0, arguments.seed, arguments.limit
    )
    odds = odds.numpy()
    if device.type == "cuda":
        pool = pool.to(device)
    holdout, holdout_odds = data.tiles(arguments.bundle, ("validate",), True)
    pairs = [
        data.batch(holdout, holdout_odds.numpy(), arguments.scale, arguments.patch, 32, 10**9 + i, device)
        for i in range(4)
    ]
    print(f"{len(pool)} tiles of {'all' if copyleft else 'no copyleft'} photographs, {len(fonts)} fonts", flush=True)

    model = network.build(arguments.size, arguments.scale)
    if arguments.initial:
        known = torch.load(arguments.initial, map_location="cpu", weights_only=True)["average"]
        own = model.state_dict()
        own.update({k: v for k, v in known.items() if k in own and own[k].shape == v.shape})
        model.load_state_dict(own)
    model = model.to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), arguments.rate, betas=(0.9, 0.99))
    step, spent, steps = 0, 0.0, arguments.steps
    checkpoint = arguments.out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent, steps = state["step"], state["seconds"], arguments.steps or state["steps"]
        print("resumed at step", step, flush=True)
    print(f"{network.cost(model) / 1000:.1f} kMAC per input pixel, margin {model.margin}", flush=True)

    def save():
        torch.save({
            "model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict(),
            "step": step, "steps": steps, "seconds": spent + time.monotonic() - begun, "size": arguments.size, "scale": arguments.scale,
        }, checkpoint)

    first, begun = step, time.monotonic()
    last = begun
    edge = slice(2 * arguments.scale, -2 * arguments.scale)
    total = 0.0
    counted = 0
    while (step < steps or not steps) and time.monotonic() - started < arguments.stop_after:
        small, large = data.batch(
            pool, odds, arguments.scale, arguments.patch, arguments.batch, [arguments.seed, step], device
        )
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps, arguments.rate)
        small = small.contiguous(memory_format=torch.channels_last)
        loss = charbonnier((model(small) - large)[..., edge, edge])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if not steps and step - first == 100:
            float(loss)  # waits for the device
            hundredth = time.monotonic()
        if not steps and step - first == 300:
            float(loss)
            left = arguments.seconds - spent - (time.monotonic() - begun)
            steps = step + int(left * 200 / (time.monotonic() - hundredth))
            print(f"{200 / (time.monotonic() - hundredth):.1f} steps a second: {steps} steps", flush=True)
        keep = min(0.999, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)
        total += loss.detach()
        counted += 1
        if time.monotonic() - last > arguments.every or step == steps:
            ours, bicubic = validate(average, pairs, 2 * arguments.scale)
            seconds = spent + time.monotonic() - begun
            row = [step, f"{seconds:.0f}", f"{float(total) / counted:.5f}", f"{ours:.3f}", f"{bicubic:.3f}"]
            with open(arguments.out / "curve.csv", "a", newline="") as f:
                csv.writer(f, lineterminator="\n").writerow(row)
            print("step %s seconds %s loss %s PSNR-Y %s bicubic %s" % tuple(row), flush=True)
            save()
            total, counted, last = 0.0, 0, time.monotonic()
    save()
    print("stopped at step", step, "of", steps, flush=True)


if __name__ == "__main__":
    main()
