"""Writes the average weights of a run as ONNX, and holds the file to PyTorch.

    python -m background.export --run runs/background --out remove-bg.onnx
"""

import argparse
import hashlib
import pathlib

import numpy as np
import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval

import graph

from . import network


def load(run):
    """The model of a run, with the average weights, and the side it was trained at."""
    state = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    model = network.build(state["size"])
    model.load_state_dict(state["average"])
    return model.eval(), state["side"]


class Writer:
    """Adds the blocks of the network to a graph, normalisation merged into convolutions."""

    def __init__(self):
        self.graph = graph.Graph()

    def plain(self, x, convolution, normalisation):
        merged = fuse_conv_bn_eval(convolution, normalisation)
        return self.graph.convolution(x, merged.weight, merged.bias, convolution.stride[0])

    def block(self, x, module):
        if isinstance(module, network.Convolution):
            return self.graph.relu(self.plain(x, module[0], module[1]))
        if isinstance(module, network.Residual):
            change = self.plain(self.block(x, module.first), module.second[0], module.second[1])
            return self.graph.relu(self.graph.add("Add", [x, change]))
        for part in module:
            x = self.block(x, part)
        return x


def write(model, side, path):
    w = Writer()
    g = w.graph
    doubling = g.constant(np.array([1, 1, 2, 2], np.float32))
    x, kept = w.block("input", model.stem), []
    for block in model.down:
        kept.append(x)
        x = w.block(g.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]), block)
    for block, skip in zip(model.up, reversed(kept)):
        large = g.add("Resize", [x, "", doubling], mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor")
        x = w.block(g.add("Concat", [large, skip], axis=1), block)
    weights = [g.constant(model.out.weight.detach().numpy()), g.constant(model.out.bias.detach().numpy())]
    logit = g.add("ConvTranspose", [x, *weights], kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4,
                  dilations=[1, 1], group=1)
    alpha = g.add("Sigmoid", [logit])
    g.save(path, "finder", ("input", [1, 3, side, side]), ("alpha", [1, 1, side, side]), alpha)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    model, side = load(arguments.run)
    write(model, side, arguments.out)
    x = np.random.default_rng(0).random((1, 3, side, side), np.float32)
    with torch.no_grad():
        want = torch.sigmoid(model(torch.from_numpy(x))).numpy()
    worst = float(np.abs(graph.run(arguments.out, x) - want).max())
    if worst > 1e-4:
        raise SystemExit(f"the file differs from PyTorch by {worst}")
    print(f"{arguments.out}: side {side}, {arguments.out.stat().st_size} bytes, differs from PyTorch by at most "
          f"{worst:.1e}, SHA-256 {hashlib.sha256(arguments.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
