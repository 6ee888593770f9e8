"""Trains an upscaler.

    python -m upscale.train --bundle data/photographs.zip --scale 2 --size standard --steps 60000 --out runs/x2

The schedule is counted in steps, and every batch follows from the seed and
its step: a run that was stopped (--stop-after) and resumed makes the same
model as one that was not. Loss is on the patch without the pixels that lack
neighbours. checkpoint.pt holds everything; curve.csv the quality on the
photographs for validation, which are not the held-out ones.
"""

import argparse
import pathlib

import torch

import loop

from . import data, network


def charbonnier(difference):
    return (difference.square() + 1e-6).sqrt().mean()


def loss_of(difference):
    """Charbonnier of RGB and, beside it, of the two chromas (BT.601): in RGB the errors of luma hide theirs."""
    r, g, b = difference.unbind(1)
    chromas = torch.stack((0.5 * b - 0.168736 * r - 0.331264 * g, 0.5 * r - 0.418688 * g - 0.081312 * b))
    return charbonnier(difference) + charbonnier(chromas)


def luma(rgb):
    """BT.601 luma in 16..235, of RGB in 0..1."""
    r, g, b = rgb.unbind(1)
    return 16 + 65.481 * r + 128.553 * g + 24.966 * b


@torch.no_grad()
def validate(model, pairs, border):
    """Mean PSNR-Y of the model and of its anchor, whose luma is bicubic."""
    scores = []
    for small, large in pairs:
        edge = slice(border, -border)
        enlarged = model(small).clamp(0, 1)[..., edge, edge]
        anchor = model.anchored(small).clamp(0, 1)[..., edge, edge]
        truth = luma(large[..., edge, edge])
        for guess in (enlarged, anchor):
            errors = (luma(guess) - truth).square().mean((1, 2))
            scores.append((10 * torch.log10(255**2 / errors.clamp_min(1e-6))).mean().item())
    return sum(scores[0::2]) / len(pairs), sum(scores[1::2]) / len(pairs)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--scale", type=int, choices=(2, 4), required=True)
    parser.add_argument("--size", choices=("fast", "standard"), default="standard")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--patch", type=int, default=48, help="side of the small pictures")
    parser.add_argument("--initial", type=pathlib.Path, help="checkpoint to take all layers from that have the same shape")
    parser.add_argument("--fonts", type=pathlib.Path, default=pathlib.Path("/usr/share/fonts/truetype"))
    parser.add_argument("--limit", type=int, help="number of photographs, for a trial")
    loop.options(parser, rate=8e-4)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = torch.device(arguments.device)

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
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.99))
    run = loop.Run(arguments, model, optimizer, {"size": arguments.size, "scale": arguments.scale}, slowest=0.999)
    print(f"{network.cost(model) / 1000:.1f} kMAC per input pixel, margin {model.margin}", flush=True)

    def note():
        ours, bicubic = validate(run.average, pairs, 2 * arguments.scale)
        run.note(psnr=ours, bicubic=bicubic)

    edge = slice(2 * arguments.scale, -2 * arguments.scale)
    while run.going():
        small, large = data.batch(
            pool, odds, arguments.scale, arguments.patch, arguments.batch, [arguments.seed, run.step], device
        )
        small = small.contiguous(memory_format=torch.channels_last)
        run.learn(loss_of((model(small) - large)[..., edge, edge]), largest=1.0)
        if run.due():
            note()
    note()
    print(f"stopped at step {run.step}, {run.share():.1%} of the schedule", flush=True)


if __name__ == "__main__":
    main()
