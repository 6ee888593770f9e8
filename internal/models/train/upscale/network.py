"""The upscaling network: plain 3x3 convolutions beside a fixed enlargement."""

import math

import torch
from torch import nn
from torch.nn import functional as F

# Width and number of inner layers, by name and scale. The cost is in
# multiply-accumulates per pixel of the input; see cost().
SIZES = {
    ("fast", 2): (32, 7),
    ("fast", 4): (32, 6),
    ("standard", 2): (48, 11),
    ("standard", 4): (48, 10),
}


def cubic(x, a=-0.5):
    """Keys' cubic kernel."""
    x = abs(x)
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    if x < 2:
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return 0.0


def lanczos(x):
    """The Lanczos kernel of three lobes."""
    if x == 0:
        return 1.0
    if abs(x) >= 3:
        return 0.0
    return math.sin(math.pi * x) * math.sin(math.pi * x / 3) * 3 / (math.pi * x) ** 2


def taps(kernel, phase):
    """A kernel's weights for the pixels -3 to 3 around a place `phase` pixels from the middle one; their sum is 1."""
    weights = torch.tensor([kernel(u - phase) for u in range(-3, 4)], dtype=torch.float64)
    return weights / weights.sum()


def anchor_weights(scale):
    """A 7x7 convolution whose channels, shuffled to pixels, are an enlargement: luma bicubic, chroma Lanczos.

    In chroma the network adds next to nothing, and Lanczos is better than
    bicubic there by half a decibel. luma of what is added to bicubic is 0.
    """
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    weights = torch.zeros(3 * scale * scale, 3, 7, 7)
    for i in range(scale):
        for j in range(scale):
            phases = [(n + 0.5) / scale - 0.5 for n in (i, j)]
            bicubic, sharper = (torch.outer(*(taps(kernel, phase) for phase in phases)) for kernel in (cubic, lanczos))
            for c in range(3):
                for other in range(3):
                    own = float(c == other)
                    weights[c * scale * scale + i * scale + j, other] = luma[other] * bicubic + (own - luma[other]) * sharper
    return weights


class Upscaler(nn.Module):
    """Adds what a fixed enlargement misses.

    An inner layer is relu(x + w*x), which export merges into relu((1+w)*x):
    it trains like a residual network and costs what a plain one does. The
    picture's borders must be replicated by the caller: the fixed enlargement needs
    three pixels around, the whole net `margin` pixels.
    """

    def __init__(self, scale, width, depth):
        super().__init__()
        self.scale, self.width, self.depth = scale, width, depth
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.inner = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.tail = nn.Conv2d(width, 3 * scale * scale, 3, padding=1)
        nn.init.kaiming_normal_(self.head.weight, nonlinearity="relu")
        for layer in self.inner:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.weight.data.mul_(0.3)
        nn.init.normal_(self.tail.weight, std=1e-3)
        for layer in [self.head, *self.inner, self.tail]:
            nn.init.zeros_(layer.bias)
        self.register_buffer("anchor", anchor_weights(scale), persistent=False)

    @property
    def margin(self):
        """How many input pixels around a pixel its output depends on."""
        return self.depth + 2

    def anchored(self, x):
        """The fixed enlargement alone."""
        return F.pixel_shuffle(F.conv2d(x, self.anchor, padding=3), self.scale)

    def forward(self, x):
        features = F.relu(self.head(x))
        for layer in self.inner:
            features = F.relu(features + layer(features))
        return F.pixel_shuffle(self.tail(features), self.scale) + self.anchored(x)


def merged(layer):
    """The weights of an inner layer with the identity added."""
    weight = layer.weight.detach().clone()
    for c in range(weight.shape[0]):
        weight[c, c, 1, 1] += 1
    return weight


def build(size, scale):
    """The network of a size's name."""
    return Upscaler(scale, *SIZES[size, scale])


def cost(model):
    """Multiply-accumulates per pixel of the input."""
    layers = [model.head, *model.inner, model.tail]
    return sum(layer.weight.numel() for layer in layers) + model.anchor.numel()
