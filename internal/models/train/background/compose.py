"""Puts subjects before grounds, in batches on the device.

The painters deliver few layers; here every subject meets several grounds, and
each pair gets its own light, shadow, match of colours, blur, noise and JPEG.
"""

import torch
from torch.nn import functional as F

from upscale import degrade


def blur(pictures, sigma):
    """A Gaussian blur of one strength for the whole batch, as two products of matrices."""
    x = torch.arange(pictures.shape[-1], device=pictures.device, dtype=pictures.dtype)
    taps = torch.exp(-(x[:, None] - x[None]).square() / (2 * sigma * sigma))
    taps = taps * (taps > 1e-6)  # what is smaller is slow on a CPU
    taps = taps / taps.sum(1, keepdim=True)
    return taps @ pictures @ taps.T


def compose(subjects, grounds, together, generator):
    """Composites of B RGBA subjects and B RGB grounds (0..1), and the alphas.

    together (B booleans) tells which grounds already show their subject: those
    pictures get no other light or colour for one than for the other.
    generator is on the device of the tensors.
    """
    count, side, device = len(subjects), subjects.shape[-1], subjects.device

    def draw(low, high, *shape):
        size = shape or (count, 1, 1, 1)
        return low + (high - low) * torch.rand(size, generator=generator, device=device)

    def some(share):
        return (torch.rand((count, 1, 1, 1), generator=generator, device=device) < share).float()

    def jittered(pictures, share, amount):
        """Other exposure, white balance, contrast, saturation and gamma, for a share of the batch."""
        changed = pictures * draw(1 - amount, 1 + amount) * draw(1 - amount / 2, 1 + amount / 2, count, 3, 1, 1)
        mean = changed.mean((1, 2, 3), keepdim=True)
        changed = (changed - mean) * draw(1 - amount, 1 + amount) + mean
        grey = changed.mean(1, keepdim=True)
        changed = grey + (changed - grey) * (1 + some(0.3) * draw(-0.8, 0.4))
        changed = changed.clamp(1e-4, 1) ** (1 + some(0.4) * draw(-0.3, 0.45))
        chosen = some(share)
        return pictures * (1 - chosen) + changed * chosen

    colour, alpha = subjects[:, :3], subjects[:, 3:]
    flip = some(0.5)
    colour, alpha = (flip * t.flip(3) + (1 - flip) * t for t in (colour, alpha))
    together = together.view(-1, 1, 1, 1)
    taken = colour
    colour, grounds = jittered(colour, 0.6, 0.35), jittered(grounds, 0.5, 0.3)

    # Some subjects take the mean colour of the ground, some grounds that of a
    # slice of the subject: what looks alike must be told apart by its shape.
    weight = alpha.sum((2, 3), keepdim=True) + 1e-3
    own = (colour * alpha).sum((2, 3), keepdim=True) / weight
    behind = grounds.mean((2, 3), keepdim=True)
    colour = (colour + (behind - own) * some(0.3) * draw(0.2, 0.9)).clamp(0, 1)
    rows = torch.arange(side, device=device, dtype=alpha.dtype).view(1, 1, -1, 1) / side
    top = (alpha.amax(3, keepdim=True) > 0.5).float().argmax(2, keepdim=True) / side
    head = some(0.3)
    start = head * top + (1 - head) * draw(0, 0.7)
    part = alpha * ((rows >= start) & (rows <= start + draw(0.15, 0.45)))
    slice_colour = (colour * part).sum((2, 3), keepdim=True) / (part.sum((2, 3), keepdim=True) + 1e-3)
    ring = blur(alpha, side * 0.05) * (1 - alpha)
    near = (grounds * ring).sum((2, 3), keepdim=True) / (ring.sum((2, 3), keepdim=True) + 1e-3)
    usable = (part.sum((2, 3), keepdim=True) > 50).float()
    grounds = (grounds + (slice_colour - near) * some(0.2) * usable * draw(0.6, 1.05)).clamp(0, 1)

    # Light from one side, on both or on the subject alone.
    angle = draw(0, 6.283)
    axis = torch.linspace(-1, 1, side, device=device)
    slope = (axis.view(1, 1, 1, -1) * angle.cos() + axis.view(1, 1, -1, 1) * angle.sin()) * 0.4
    lit = some(0.3)
    colour = (colour * (1 + lit * slope)).clamp(0, 1)
    grounds = (grounds * (1 + lit * some(0.7) * slope)).clamp(0, 1)

    # A shadow on the ground: the subject's shape, shifted and squeezed.
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 1, 1] = 1, draw(1.0, 2.5, count)
    theta[:, 0, 1], theta[:, 0, 2], theta[:, 1, 2] = draw(-0.4, 0.4, count), draw(-0.2, 0.2, count), draw(-1.2, 0.1, count)
    shadow = F.grid_sample(alpha, F.affine_grid(theta, alpha.shape, align_corners=False), align_corners=False)
    shadow = blur(shadow, float(draw(1, 9, 1)))
    grounds = grounds * (1 - some(0.4) * draw(0.15, 0.7) * shadow)

    alpha = torch.lerp(alpha, blur(alpha, float(draw(0.4, 1.2, 1))), some(0.7))
    pictures = torch.where(together, taken, grounds * (1 - alpha) + colour * alpha)
    pictures = torch.lerp(pictures, blur(pictures, float(draw(0.4, 1.6, 1))), some(0.15))
    pictures = jittered(pictures, 0.5, 0.25)
    pictures = torch.lerp(pictures, pictures.mean(1, keepdim=True).expand_as(pictures), some(0.06))
    noise = torch.randn(pictures.shape, generator=generator, device=device)
    noise = torch.lerp(noise, noise.mean(1, keepdim=True).expand_as(noise) * 1.7, some(0.4))
    pictures = (pictures + noise * some(0.45) * draw(0.005, 0.05)).clamp(0, 1)
    chosen = some(0.35).flatten().bool()
    if chosen.any():
        quality = draw(35, 95, count)[chosen].round()
        subsampled = torch.ones(len(quality), dtype=torch.bool, device=device)
        pictures[chosen] = degrade.jpeg((pictures[chosen] * 255).round(), quality, subsampled) / 255
    return pictures, alpha
