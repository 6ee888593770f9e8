"""Makes a checkpoint to begin from out of a smaller upscaler's file.

    python -m upscale.grow --onnx ../upscale-2x.onnx --scale 2 --size standard --out runs/x2-grown

The larger network computes what the smaller one does: new layers begin as the
identity, new channels feed nothing old. Pass its checkpoint.pt to --initial.
"""

import argparse
import pathlib

import numpy as np
import torch

import graph

from . import network


@torch.no_grad()
def grow(small, model):
    """Writes the smaller network's layers into the larger one."""
    (head, head_bias), *inner, (tail, tail_bias) = small
    width = head.shape[0]
    if width > model.width or len(inner) > model.depth:
        raise SystemExit("the file is larger than the size asked for")
    model.head.weight[:width], model.head.bias[:width] = head, head_bias
    for number, layer in enumerate(model.inner):
        layer.weight[:width], layer.bias[:width] = 0, 0
        if number < len(inner):
            weight, bias = inner[number]
            layer.weight[:width, :width], layer.bias[:width] = weight, bias
            for c in range(width):
                layer.weight[c, c, 1, 1] -= 1
    model.tail.weight.zero_()
    model.tail.weight[:, :width], model.tail.bias[:] = tail, tail_bias


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=pathlib.Path, required=True)
    parser.add_argument("--scale", type=int, choices=(2, 4), required=True)
    parser.add_argument("--size", choices=("fast", "standard"), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = network.build(arguments.size, arguments.scale)
    grow([tuple(map(torch.from_numpy, layer)) for layer in graph.convolutions(arguments.onnx)], model)
    x = np.random.default_rng(0).random((1, 3, 40, 40), np.float32)
    with torch.no_grad():
        worst = np.abs(model(torch.from_numpy(x)).numpy() - graph.run(arguments.onnx, x)).max()
    if worst > 1e-4:
        raise SystemExit(f"the grown network differs by {worst}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.save({"average": model.state_dict(), "size": arguments.size, "scale": arguments.scale}, arguments.out / "checkpoint.pt")
    print(f"{network.cost(model) / 1000:.1f} kMAC per input pixel, differs from the file by at most {worst:.1e}")


if __name__ == "__main__":
    main()
