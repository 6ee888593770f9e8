"""Trains the network that finds the subject.

    python -m background.train --bundle data/photographs.zip --cutouts data/cutouts --steps 20000 --out runs/background

Painters (processes) draw subjects and grounds, the device composes them: each
painted batch is used --reuse times, with other partners and another look
every time. Stopping and resuming go on with the schedule; with several
painters the order of their batches is not fixed, so two runs differ a little.
"""

import argparse
import contextlib
import pathlib

import cv2
import numpy as np
import torch
from torch import multiprocessing
from torch.nn import functional as F

import loop

from . import compose, layers, network


def stacked(painter, count):
    """Painted batches of subjects and grounds, as bytes, and which of them belong together."""
    subjects, grounds, together = zip(*(painter.layers() for _ in range(count)))
    subjects, grounds = (
        torch.stack([torch.from_numpy(layer) for layer in stack]).permute(0, 3, 1, 2).contiguous()
        for stack in (subjects, grounds)
    )
    return subjects, grounds, torch.tensor(together)


def composed(subjects, grounds, together, generator):
    """Pictures and alphas, every subject before another's ground but those that belong together."""
    apart = (~together).nonzero().flatten()
    order = torch.arange(len(grounds), device=grounds.device)
    order[apart] = apart[torch.randperm(len(apart), generator=generator, device=grounds.device)]
    return compose.compose(subjects.float() / 255, grounds[order].float() / 255, together, generator)


def paint(queue, arguments, number, start):
    """A painter: puts batches into the queue as long as the training lives; where the device is the CPU, composed ones."""
    torch.set_num_threads(1)
    copyleft = not arguments.without_copyleft
    painter = layers.Painter(
        layers.cutouts(arguments.cutouts, copyleft), layers.photographs(arguments.bundle, copyleft),
        arguments.side, [arguments.seed, number, start], layers.scenes(arguments.bundle, copyleft),
    )
    generator = torch.Generator().manual_seed(arguments.seed * 1000003 + number * 1009 + start)
    while multiprocessing.parent_process().is_alive():  # nobody ends the painters of a run that was killed
        batch = stacked(painter, arguments.batch)
        if arguments.device != "cpu":
            queue.put(batch)
            continue
        for _ in range(arguments.reuse):
            pictures, alpha = ((t * 255).round().byte() for t in composed(*batch, generator))
            queue.put((pictures, alpha, painted_edges(alpha, 4), painted_edges(alpha, 6)))


def fixed(arguments, count=128):
    """Composites to validate on, of held-out cut-outs and photographs."""
    painter = layers.Painter(
        layers.cutouts(arguments.cutouts, part="held"), layers.photographs(arguments.bundle, uses=("validate",)),
        arguments.side, [arguments.seed, 10**6],
    )
    generator = torch.Generator().manual_seed(arguments.seed)
    return [composed(*stacked(painter, 16), generator) for _ in range(count // 16)]


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


def painted_edges(alpha, reach):
    """The same of bytes, by OpenCV: on a CPU much faster."""
    kernel = np.ones((2 * reach + 1,) * 2, np.uint8)
    planes = alpha[:, 0].numpy()
    return torch.from_numpy(np.stack([cv2.morphologyEx(p, cv2.MORPH_GRADIENT, kernel) for p in planes]))[:, None]


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
    parser.add_argument("--size", choices=network.SIZES, default="large")
    parser.add_argument("--initial", type=pathlib.Path, help="checkpoint of a network of this size to begin from")
    parser.add_argument("--side", type=int, default=384)
    parser.add_argument("--early-side", type=int, help="side in the first half of the schedule, to save time")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--reuse", type=int, default=4)
    parser.add_argument("--painters", type=int, default=1)
    loop.options(parser, rate=1.3e-3)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.benchmark = True
    device = torch.device(arguments.device)

    model = network.build(arguments.size)
    if arguments.initial:
        model.load_state_dict(torch.load(arguments.initial, map_location="cpu", weights_only=True)["average"])
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW([
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-2},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ])
    run = loop.Run(arguments, model, optimizer, {"size": arguments.size, "side": arguments.side})
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)

    context = multiprocessing.get_context("spawn")
    queue = context.Queue(2 * arguments.painters)
    painters = [
        context.Process(target=paint, args=(queue, arguments, n, run.step), daemon=True) for n in range(arguments.painters)
    ]
    for painter in painters:
        painter.start()
    generator = torch.Generator(device).manual_seed(arguments.seed * 1000003 + run.step)

    def painted():
        return tuple(t.to(device, non_blocking=True) for t in queue.get())

    pairs = [tuple(t.to(device) for t in pair) for pair in fixed(arguments)]
    mixed = torch.autocast(device.type, torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()
    uses = 0

    def note():
        iou, error = validate(run.average, pairs)
        run.note(iou=iou, mae=error)

    note()
    while run.going():
        share = run.share()
        haze = 0.15 * min(1, max(0, (share - 0.35) / 0.3))
        if device.type == "cpu":
            pictures, alpha, near, far = (t.float() / 255 for t in painted())
        else:
            if uses == 0:
                layer = painted()
                uses = arguments.reuse
            uses -= 1
            pictures, alpha = composed(*layer, generator)
            near, far = edges(alpha, 4), edges(alpha, 6)
        if arguments.early_side and share < 0.5:
            size = (arguments.early_side,) * 2
            pictures, alpha, near, far = (
                F.interpolate(t, size=size, mode="bilinear", antialias=True) for t in (pictures, alpha, near, far)
            )
        weight, far = 1 + 3 * near, 1 - far
        with mixed:
            logit, quarter, sixteenth = model(pictures.contiguous(memory_format=torch.channels_last), sides=True)
        loss = loss_of(logit.float(), alpha, weight, far, haze)
        for side, factor in ((quarter, 4), (sixteenth, 16)):
            loss = loss + 0.4 * loss_of(side.float(), F.avg_pool2d(alpha, factor), F.avg_pool2d(weight, factor))
        run.learn(loss, largest=5.0)
        if run.due():
            note()
    note()
    print(f"stopped at step {run.step}, {run.share():.1%} of the schedule", flush=True)
    for painter in painters:
        painter.terminate()


if __name__ == "__main__":
    main()
