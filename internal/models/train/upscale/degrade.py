"""Makes small pictures of large ones, as clients' pictures come about.

All on the device of the tensors, in batches: resampling with the usual
kernels, decimation without a filter, and the losses of JPEG.
"""

import math

import torch
from torch.nn import functional as F

from .network import cubic, lanczos

JPEG_LUMA = torch.tensor([
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56], [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99],
]).float()
JPEG_CHROMA = torch.tensor([
    [17, 18, 24, 47, 99, 99, 99, 99], [18, 21, 26, 66, 99, 99, 99, 99],
    [24, 26, 56, 99, 99, 99, 99, 99], [47, 66, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99], [99, 99, 99, 99, 99, 99, 99, 99],
    [99, 99, 99, 99, 99, 99, 99, 99], [99, 99, 99, 99, 99, 99, 99, 99],
]).float()
DCT = torch.tensor([
    [math.sqrt((1 if u == 0 else 2) / 8) * math.cos((2 * x + 1) * u * math.pi / 16) for x in range(8)]
    for u in range(8)
])


# Kernel and its radius, in pixels of the small picture.
KERNELS = {
    "bicubic": (cubic, 2),
    "lanczos": (lanczos, 3),
    "triangle": (lambda x: max(0.0, 1 - abs(x)), 1),
    "box": (lambda x: 1.0 if -0.5 <= x < 0.5 else 0.0, 0.5),
}


def taps(name, scale):
    """The weights of a kernel and how far they reach beyond a block of scale pixels."""
    kernel, radius = KERNELS[name]
    reach = math.ceil(radius * scale - scale / 2)
    weights = [kernel((i + 0.5 - reach - scale / 2) / scale) for i in range(scale + 2 * reach)]
    total = sum(weights)
    return torch.tensor([w / total for w in weights]), reach


def shrink(pictures, scale, kernel, margin):
    """Pictures shrunk by scale, after `margin` pixels were cut from each side.

    Values are 0..255, rounded like those of a picture with 8 bits. "nearest"
    decimates without a filter, as Pillow does.
    """
    if kernel == "nearest":
        inner = pictures[..., margin:-margin, margin:-margin]
        return inner[..., scale // 2 :: scale, scale // 2 :: scale]
    weights, reach = taps(kernel, scale)
    if reach > margin:
        raise ValueError(f"{kernel} needs a margin of {reach} pixels")
    cut = margin - reach
    inner = pictures[..., cut : pictures.shape[-2] - cut, cut : pictures.shape[-1] - cut]
    weights = weights.to(inner)
    channels = inner.shape[1]
    rows = F.conv2d(inner, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), stride=(scale, 1), groups=channels)
    both = F.conv2d(rows, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), stride=(1, scale), groups=channels)
    return both.clamp(0, 255).round()


def blocks(plane):
    """B x H x W as B x n x 8 x 8."""
    b, h, w = plane.shape
    return plane.view(b, h // 8, 8, w // 8, 8).permute(0, 1, 3, 2, 4).reshape(b, -1, 8, 8)


def unblocks(parts, h, w):
    b = parts.shape[0]
    return parts.view(b, h // 8, w // 8, 8, 8).permute(0, 1, 3, 2, 4).reshape(b, h, w)


def quantise(plane, table, quality):
    """A plane after JPEG's rounding of its frequencies."""
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality).view(-1, 1, 1)
    steps = ((table.to(plane) * scale + 50) / 100).floor().clamp(1, 255).unsqueeze(1)
    dct = DCT.to(plane)
    frequencies = dct @ blocks(plane - 128) @ dct.T
    return unblocks(dct.T @ ((frequencies / steps).round() * steps) @ dct, *plane.shape[1:]) + 128


def jpeg(pictures, quality, subsampled):
    """Pictures (0..255, sides multiples of 16) with the losses of JPEG.

    quality has one value per picture; subsampled pictures have chroma at half
    the size, enlarged bilinearly as libjpeg's decoder does.
    """
    r, g, b = pictures.unbind(1)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    cb, cr = (b - y) / 1.772 + 128, (r - y) / 1.402 + 128
    y = quantise(y.round(), JPEG_LUMA, quality)

    def chroma(plane):
        full = quantise(plane.round(), JPEG_CHROMA, quality)
        small = F.avg_pool2d(plane[:, None], 2)[:, 0].round()
        small = quantise(small, JPEG_CHROMA, quality)
        half = F.interpolate(small[:, None], scale_factor=2, mode="bilinear")[:, 0]
        return torch.where(subsampled.view(-1, 1, 1), half, full)

    cb, cr = chroma(cb) - 128, chroma(cr) - 128
    rgb = torch.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], 1)
    return rgb.clamp(0, 255).round()
