"""Writes the average weights of a run as ONNX, and holds the file to PyTorch.

    python -m upscale.export --run runs/x2 --out upscale-2x.onnx
"""

import argparse
import hashlib
import pathlib

import numpy as np
import torch

import graph

from . import network


def load(run):
    """The model of a run, with the average weights."""
    state = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    model = network.build(state["size"], state["scale"])
    model.load_state_dict(state["average"])
    return model.eval()


def write(model, path):
    g = graph.Graph()
    x = g.relu(g.convolution("input", model.head.weight, model.head.bias))
    for layer in model.inner:
        x = g.relu(g.convolution(x, network.merged(layer), layer.bias))
    residual = g.convolution(x, model.tail.weight, model.tail.bias)
    total = g.add("Add", [residual, g.convolution("input", model.anchor)])
    shuffled = g.add("DepthToSpace", [total], blocksize=model.scale, mode="CRD")
    g.save(path, "upscaler", ("input", ["n", 3, "h", "w"]), ("output", ["n", 3, "h_out", "w_out"]), shuffled)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    model = load(arguments.run)
    write(model, arguments.out)
    worst = 0.0
    random = np.random.default_rng(0)
    for shape in ((1, 3, 33, 47), (2, 3, 24, 24), (1, 3, 96, 61)):
        x = random.random(shape, np.float32)
        with torch.no_grad():
            want = model(torch.from_numpy(x)).numpy()
        worst = max(worst, float(np.abs(graph.run(arguments.out, x) - want).max()))
    if worst > 1e-4:
        raise SystemExit(f"the file differs from PyTorch by {worst}")
    print(f"{arguments.out}: {network.cost(model) / 1000:.1f} kMAC per input pixel, margin {model.margin}, "
          f"{arguments.out.stat().st_size} bytes, differs from PyTorch by at most {worst:.1e}, "
          f"SHA-256 {hashlib.sha256(arguments.out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
