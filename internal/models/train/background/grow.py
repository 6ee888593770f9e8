"""Makes a checkpoint to begin from out of a file written by `background.export`.

    python -m background.grow --onnx ../remove-bg.onnx --size small --out runs/begun

The network computes what the file does; a larger size has new channels that
feed nothing old. In the file the normalisation is merged into the
convolutions: it comes back as the mean and the spread that their outputs have
on `--bundle`'s photographs, which changes nothing that is computed but lets
training go on as it began. Pass the checkpoint.pt to --initial.
"""

import argparse
import pathlib

import numpy as np
import torch
from torch import nn

import bundle
import graph

from . import network


def merged(model):
    """The model's convolutions with their normalisation, in the order of computing."""
    found, last = [], None
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            last = module
        elif isinstance(module, nn.BatchNorm2d):
            found.append((last, module))
    return found


@torch.no_grad()
def grow(small, model):
    """Writes the file's layers into a network that is as wide or wider."""
    *convolutions, (out, out_bias) = small
    pairs = merged(model)
    if len(pairs) != len(convolutions):
        raise SystemExit(f"the file has {len(convolutions)} convolutions, the network {len(pairs)}")
    joined = {block[0][0]: skip for block, skip in zip(model.up, reversed(range(len(model.up))))}
    skips = [model.stem[1][0], *(block[0][0] for block in model.down)]
    widths = {c: weight.shape[0] for (c, _), (weight, _) in zip(pairs, convolutions)}
    for (convolution, normalisation), (weight, bias) in zip(pairs, convolutions):
        outputs, inputs = weight.shape[:2]
        columns = torch.arange(inputs)
        if convolution in joined:  # decoder: what comes from below, then the skip
            skip = skips[joined[convolution]]
            columns[inputs - widths[skip] :] += convolution.in_channels - skip.out_channels - (inputs - widths[skip])
        if outputs > convolution.out_channels or columns[-1] >= convolution.in_channels:
            raise SystemExit("the file is larger than the size asked for")
        convolution.weight[:outputs] = 0
        convolution.weight[:outputs, columns] = weight
        nn.init.ones_(normalisation.weight)
        normalisation.bias[:outputs] = bias
        normalisation.running_var.fill_(1 - normalisation.eps)
    model.out.weight.zero_()
    model.out.weight[: len(out)], model.out.bias[:] = out, out_bias


@torch.no_grad()
def normalise(model, pictures):
    """Gives every normalisation the mean and spread of what it sees, and undoes it in its scale and shift."""
    handles = []
    for _, normalisation in merged(model):
        def measure(module, inputs):
            spread, mean = torch.var_mean(inputs[0], (0, 2, 3))
            module.bias += module.weight * (mean - module.running_mean) / (module.running_var + module.eps).sqrt()
            module.weight *= ((spread + module.eps) / (module.running_var + module.eps)).sqrt()
            module.running_mean.copy_(mean)
            module.running_var.copy_(spread)
        handles.append(normalisation.register_forward_pre_hook(measure))
    model.eval()(pictures)
    for handle in handles:
        handle.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=pathlib.Path, required=True)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--size", choices=network.SIZES, required=True)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    model = network.build(arguments.size)
    grow([tuple(map(torch.from_numpy, layer)) for layer in graph.convolutions(arguments.onnx)], model)
    images = [image.resize((arguments.side,) * 2) for _, image in bundle.photographs(arguments.bundle, ("train",))]
    pictures = torch.from_numpy(np.stack(images[:32])).permute(0, 3, 1, 2).float() / 255
    normalise(model, pictures)
    with torch.no_grad():
        own = torch.sigmoid(model.eval()(pictures[:4, :, :256, :256])).numpy()
    file = np.concatenate([graph.run(arguments.onnx, p[None, :, :256, :256].numpy()) for p in pictures[:4]])
    worst = np.abs(own - file).max()
    if worst > 1e-5:
        raise SystemExit(f"the network differs from the file by {worst}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.save(
        {"average": model.state_dict(), "size": arguments.size, "side": arguments.side}, arguments.out / "checkpoint.pt"
    )
    print(f"{sum(p.numel() for p in model.parameters())} parameters, differs from the file by at most {worst:.1e}")


if __name__ == "__main__":
    main()
