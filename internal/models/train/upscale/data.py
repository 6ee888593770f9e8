"""Training pairs for the upscalers, made on the device."""

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import bundle

from . import degrade

TILE = 352  # of the large picture; a batch cuts its patches out of tiles
STEP = 176
MARGIN = 16  # pixels of the large picture around a patch, which kernels reach into
GRID = 16  # JPEG's blocks lie anywhere relative to a patch

KERNELS = ("bicubic", "lanczos", "triangle", "box", "nearest")
SHARES = (0.62, 0.12, 0.06, 0.12, 0.08)
JPEG_SHARE = 0.28


def pyramid(image):
    """The photograph and smaller versions of it: other scenes, sharper edges."""
    yield image
    for divisor in (1.5, 2.25):
        size = (int(image.width / divisor), int(image.height / divisor))
        if min(size) >= TILE:
            yield image.resize(size, Image.BICUBIC)


def drawing(random, fonts):
    """Text and lines: what photographs hardly hold."""
    side = 2 * TILE
    paper, ink = random.integers(0, 256, 3), random.integers(0, 256, 3)
    if random.random() < 0.6:
        paper, ink = random.integers(225, 256, 3), random.integers(0, 60, 3)
        if random.random() < 0.25:
            paper, ink = ink, paper
    large = Image.new("RGB", (side * 2, side * 2), tuple(int(v) for v in paper))
    draw = ImageDraw.Draw(large)
    y = 0
    while y < large.height:
        font = ImageFont.truetype(str(random.choice(fonts)), int(random.integers(22, 90)))
        if random.random() < 0.75:
            text = "".join(chr(int(c)) for c in random.integers(32, 127, 80))
            draw.text((int(random.integers(-60, 20)), y), text, tuple(int(v) for v in ink), font)
        else:
            for _ in range(int(random.integers(1, 12))):
                box = [int(v) for v in random.integers(0, large.width, 4)]
                box[1], box[3] = y + box[1] % 120, y + box[3] % 120
                colour = tuple(int(v) for v in random.integers(0, 256, 3))
                shape, width = random.integers(0, 3), int(random.integers(1, 8))
                if shape == 0:
                    draw.line(box, colour, width)
                elif shape == 1:
                    draw.arc([min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]) + 2, max(box[1], box[3]) + 2], 0, int(random.integers(90, 361)), colour, width)
                else:
                    draw.rectangle([min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]) + 2, max(box[1], box[3]) + 2], None, colour, width)
        y += int(font.size * random.uniform(0.9, 1.6))
    return large.resize((side, side), Image.BICUBIC)


def tiles(path, uses, copyleft, fonts=(), drawings=0, seed=0, limit=None):
    """All photographs cut into overlapping tiles: N x 3 x TILE x TILE bytes.

    Beside them the odds of drawing each: the square root of its detail, so
    that skies do not fill the batches.
    """
    random = np.random.default_rng(seed)
    found, odds = [], []

    def add(image):
        pixels = np.asarray(image)
        for y in range(0, pixels.shape[0] - TILE + 1, STEP):
            for x in range(0, pixels.shape[1] - TILE + 1, STEP):
                tile = pixels[y : y + TILE, x : x + TILE]
                luma = tile.astype(np.float32) @ np.float32([0.299, 0.587, 0.114])
                detail = np.abs(4 * luma[1:-1, 1:-1] - luma[:-2, 1:-1] - luma[2:, 1:-1] - luma[1:-1, :-2] - luma[1:-1, 2:])
                found.append(np.ascontiguousarray(tile.transpose(2, 0, 1)))
                odds.append(np.sqrt(detail.mean() + 0.5))

    for number, (_, image) in enumerate(bundle.photographs(path, uses, copyleft)):
        if limit is not None and number >= limit:
            break
        for version in pyramid(image):
            add(version)
    first = len(odds)
    for _ in range(drawings):
        add(drawing(random, fonts))
    odds = np.array(odds)
    if drawings and first:  # drawings are a twentieth of the batches
        odds[first:] = odds[:first].sum() * 0.05 / 0.95 / len(odds[first:])
    return torch.from_numpy(np.stack(found)), torch.from_numpy(odds / odds.sum())


def batch(pool, odds, scale, patch, size, seed, device):
    """`size` pairs of a small picture and the large one it was made from, 0..1.

    The same seed gives the same batch.
    """
    random = np.random.default_rng(seed)
    chosen = np.searchsorted(np.cumsum(odds), random.random(size)).clip(0, len(odds) - 1)
    window = (patch + GRID) * scale + 2 * MARGIN
    y, x = (int(v) for v in random.integers(0, TILE - window + 1, 2))
    large = pool[torch.from_numpy(chosen).to(pool.device), :, y : y + window, x : x + window]
    large = large.to(device).float()

    if random.random() < 0.5:
        large = large.flip(3)
    large = torch.rot90(large, int(random.integers(4)), (2, 3))
    if random.random() < 0.5:
        large = large[:, list(random.permutation(3))]

    # Each kernel takes its share of the batch.
    kernels = random.choice(len(KERNELS), size, p=SHARES)
    small = torch.empty(size, 3, patch + GRID, patch + GRID, device=device)
    for k, name in enumerate(KERNELS):
        rows = torch.from_numpy(np.flatnonzero(kernels == k)).to(device)
        if len(rows):
            small[rows] = degrade.shrink(large[rows], scale, name, MARGIN)
    compressed = torch.from_numpy(np.flatnonzero(random.random(size) < JPEG_SHARE)).to(device)
    if len(compressed):
        quality = torch.from_numpy(random.integers(60, 96, len(compressed)).astype(np.float32)).to(device)
        subsampled = torch.from_numpy(random.random(len(compressed)) < 0.7).to(device)
        small[compressed] = degrade.jpeg(small[compressed], quality, subsampled)

    # Cut off the phase of JPEG's grid: (y, x) of the patch within its blocks.
    y, x = (int(v) for v in random.integers(0, GRID + 1, 2))
    small = small[..., y : y + patch, x : x + patch]
    top, left = MARGIN + y * scale, MARGIN + x * scale
    large = large[..., top : top + patch * scale, left : left + patch * scale]
    return small / 255, large / 255
