"""The network that finds the subject: an encoder and decoder of plain convolutions."""

import torch
from torch import nn
from torch.nn import functional as F

# Channels at 1/2, 1/2, 1/4, ... 1/64 of the side, and of the decoder from 1/32
# to 1/2. The side of the input must be a multiple of 64.
SIZES = {
    "small": ((16, 24, 40, 64, 96, 112, 112), (96, 64, 48, 32, 24)),
    "large": ((24, 32, 48, 80, 128, 136, 152), (120, 80, 64, 40, 32)),
}


class Convolution(nn.Sequential):
    """A 3x3 convolution, normalisation and ReLU."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
        )


class Residual(nn.Module):
    """Two convolutions beside the identity; begins as the identity."""

    def __init__(self, channels):
        super().__init__()
        self.first = Convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))
        nn.init.zeros_(self.second[1].weight)

    def forward(self, x):
        return F.relu(x + self.second(self.first(x)))


class Finder(nn.Module):
    """RGB in 0..1 in, the logit of the subject's alpha out, at the same size."""

    def __init__(self, encoder, decoder):
        super().__init__()
        first, half, *rest = encoder
        self.stem = nn.Sequential(Convolution(3, first, 2), Convolution(first, half))
        self.down = nn.ModuleList()
        channels = half
        for level, width in enumerate(rest):
            blocks = 1 if level == 0 else 2
            self.down.append(nn.Sequential(Convolution(channels, width), *(Residual(width) for _ in range(blocks))))
            channels = width
        self.up = nn.ModuleList()
        skips = [half, *rest[:-1]][::-1]
        for level, (width, skip) in enumerate(zip(decoder, skips)):
            blocks = 1 if level < 3 else 0
            self.up.append(nn.Sequential(Convolution(channels + skip, width), *(Residual(width) for _ in range(blocks))))
            channels = width
        self.out = nn.ConvTranspose2d(channels, 1, 4, 2, 1)
        nn.init.constant_(self.out.bias, -0.5)
        self.side_quarter = nn.Conv2d(decoder[3], 1, 1)  # for training only
        self.side_sixteenth = nn.Conv2d(decoder[1], 1, 1)

    def forward(self, x, sides=False):
        x = self.stem(x)
        kept = []
        for block in self.down:
            kept.append(x)
            x = block(F.max_pool2d(x, 2))
        decoded = []
        for block, skip in zip(self.up, reversed(kept)):
            x = block(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skip], 1))
            decoded.append(x)
        logit = self.out(x)
        if not sides:
            return logit
        return logit, self.side_quarter(decoded[3]), self.side_sixteenth(decoded[1])


def build(size):
    """A network of one of the SIZES."""
    return Finder(*SIZES[size])
