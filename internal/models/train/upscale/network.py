"""The upscaling network: plain 3x3 convolutions beside a fixed bicubic enlargement."""

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


def bicubic_weights(scale):
    """A 5x5 convolution whose channels, shuffled to pixels, are the bicubic enlargement."""
    weights = torch.zeros(3 * scale * scale, 3, 5, 5)
    for i in range(scale):
        for j in range(scale):
            dy, dx = (i + 0.5) / scale - 0.5, (j + 0.5) / scale - 0.5
            for u in range(-2, 3):
                for v in range(-2, 3):
                    for c in range(3):
                        channel = c * scale * scale + i * scale + j
                        weights[channel, c, u + 2, v + 2] = cubic(u - dy) * cubic(v - dx)
    return weights


class Upscaler(nn.Module):
    """Adds what bicubic misses.

    An inner layer is relu(x + w*x), which export merges into relu((1+w)*x):
    it trains like a residual network and costs what a plain one does. The
    picture's borders must be replicated by the caller: bicubic needs two
    pixels around, the whole net `margin` pixels.
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
        self.register_buffer("anchor", bicubic_weights(scale))

    @property
    def margin(self):
        """How many input pixels around a pixel its output depends on."""
        return self.depth + 2

    def forward(self, x):
        features = F.relu(self.head(x))
        for layer in self.inner:
            features = F.relu(features + layer(features))
        return F.pixel_shuffle(self.tail(features) + F.conv2d(x, self.anchor, padding=2), self.scale)


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
