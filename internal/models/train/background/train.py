"""Trains the network that finds the subject.

    python -m background.train --bundle data/photographs.zip --cutouts data/cutouts --steps 20000 --out runs/background

Painters (processes) draw subjects and grounds, the device composes them: each
painted batch is used --reuse times, with other partners and another look
every time. Stopping and resuming go on with the schedule; with several
painters the order of their batches is not fixed, so two runs differ a little.
"""

import argparse
import contextlib
import copy
import csv
import math
import pathlib
import time

import torch
from torch import multiprocessing
from torch.nn import functional as F

from . import compose, layers, network


def paint(queue, arguments, number, start):
    """A painter: puts batches of (subjects, grounds) into the queue for ever."""
    torch.set_num_threads(1)
    copyleft = not arguments.without_copyleft
    painter = layers.Painter(
        layers.cutouts(arguments.cutouts, copyleft), layers.photographs(arguments.bundle, copyleft),
        arguments.side, [arguments.seed, number, start],
    )
    while True:
        subjects, grounds = zip(*(painter.layers() for _ in range(arguments.batch)))
        queue.put(tuple(
            torch.stack([torch.from_numpy(layer) for layer in stack]).permute(0, 3, 1, 2).contiguous()
            for stack in (subjects, grounds)
        ))


def loss_of(logit, alpha, weight, far=None, haze=0.0):
    """Cross entropy and soft IoU, heavier at edges; `haze` punishes grey far from them."""
    entropy = F.binary_cross_entropy_with_logits(logit, alpha, reduction="none")
    entropy = (entropy * weight).sum((1, 2, 3)) / weight.sum((1, 2, 3))
    guess = torch.sigmoid(logit)
    shared = (guess * alpha * weight).sum((1, 2, 3))
    union = ((guess + alpha - guess * alpha) * weight).sum((1, 2, 3))
    loss = entropy + 1 - (shared + 1) / (union + 1)
    if haze:
        grey = (4 * guess * (1 - guess) * far).sum((1, 2, 3)) / far.sum((1, 2, 3)).clamp_min(1)
        loss = loss + haze * grey
    return loss.mean()


def edges(alpha, reach):
    """How much alpha varies within `reach` pixels."""
    side = 2 * reach + 1
    return F.max_pool2d(alpha, side, 1, reach) + F.max_pool2d(-alpha, side, 1, reach)


@torch.no_grad()
def validate(model, pairs):
    """Mean IoU and absolute error on fixed composites."""
    shares, errors = [], []
    for pictures, alpha in pairs:
        guess = torch.sigmoid(model(pictures).float())
        own, true = guess > 0.5, alpha > 0.5
        shares.append(((own & true).sum((1, 2, 3)) / (own | true).sum((1, 2, 3)).clamp_min(1)).mean().item())
        errors.append((guess - alpha).abs().mean().item())
    return sum(shares) / len(shares), sum(errors) / len(errors)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--cutouts", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, default=0)
    length.add_argument("--seconds", type=float, help="instead of steps: as many as fit, by the speed of the first 300")
    parser.add_argument("--side", type=int, default=network.SIDE)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--reuse", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-copyleft", action="store_true")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds, then checkpoint and end")
    parser.add_argument("--every", type=float, default=60, help="seconds between checkpoints")
    parser.add_argument("--painters", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main():
    arguments = parse()
    started = time.monotonic()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.benchmark = True
    device = torch.device(arguments.device)
    arguments.out.mkdir(parents=True, exist_ok=True)

    model = network.Finder().to(device, memory_format=torch.channels_last)
    average = copy.deepcopy(model).eval()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-2},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, arguments.rate)
    step, spent, steps = 0, 0.0, arguments.steps
    checkpoint = arguments.out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent, steps = state["step"], state["seconds"], arguments.steps or state["steps"]
        print("resumed at step", step, flush=True)
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)

    context = multiprocessing.get_context("spawn")
    queue = context.Queue(2 * arguments.painters)
    painters = [
        context.Process(target=paint, args=(queue, arguments, n, step), daemon=True) for n in range(arguments.painters)
    ]
    for painter in painters:
        painter.start()
    generator = torch.Generator(device).manual_seed(arguments.seed * 1000003 + step)

    def painted():
        return tuple(t.to(device, non_blocking=True) for t in queue.get())

    def composed(subjects, grounds):
        order = torch.randperm(len(grounds), generator=generator, device=device)
        return compose.compose(subjects.float() / 255, grounds[order].float() / 255, generator)

    fixed = [composed(*painted()) for _ in range(2)]
    mixed = torch.autocast(device.type, torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()
    first, begun = step, time.monotonic()
    last = begun
    total, counted, uses = 0.0, 0, 0

    def save():
        torch.save({
            "model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict(),
            "step": step, "steps": steps, "seconds": spent + time.monotonic() - begun, "side": arguments.side,
        }, checkpoint)

    while (step < steps or not steps) and time.monotonic() - started < arguments.stop_after:
        share = step / steps if steps else 0
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(1, (step + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)
        haze = 0.15 * min(1, max(0, (share - 0.35) / 0.3))
        if uses == 0:
            layer = painted()
            uses = arguments.reuse
        uses -= 1
        pictures, alpha = composed(*layer)
        weight = 1 + 3 * edges(alpha, 4)
        far = 1 - edges(alpha, 6)
        with mixed:
            logit, quarter, sixteenth = model(pictures.contiguous(memory_format=torch.channels_last), sides=True)
        loss = loss_of(logit.float(), alpha, weight, far, haze)
        for side, factor in ((quarter, 4), (sixteenth, 16)):
            loss = loss + 0.4 * loss_of(side.float(), F.avg_pool2d(alpha, factor), F.avg_pool2d(weight, factor))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
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
        keep = min(0.998, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)
            for mean, now in zip(average.buffers(), model.buffers()):
                mean.lerp_(now, 1 - keep) if mean.is_floating_point() else mean.copy_(now)
        total, counted = total + loss.detach(), counted + 1
        if time.monotonic() - last > arguments.every or step == steps:
            iou, error = validate(average, fixed)
            row = [step, f"{spent + time.monotonic() - begun:.0f}", f"{float(total) / counted:.4f}", f"{iou:.4f}", f"{error:.4f}"]
            with open(arguments.out / "curve.csv", "a", newline="") as f:
                csv.writer(f, lineterminator="\n").writerow(row)
            print("step %s seconds %s loss %s IoU %s MAE %s" % tuple(row), flush=True)
            save()
            total, counted, last = 0.0, 0, time.monotonic()
    save()
    print("stopped at step", step, "of", steps, flush=True)
    for painter in painters:
        painter.terminate()


if __name__ == "__main__":
    main()
