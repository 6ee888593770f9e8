"""Writes cut-outs as `KIND-train.tar` and `KIND-held.tar`: WebP files with straight alpha."""

import io
import pathlib
import tarfile

import cv2
import numpy as np
from PIL import Image

SIDE = 340


def arguments(parser):
    """The options that every renderer has."""
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sheet", type=pathlib.Path, help="a PNG that shows the first cut-outs")


def serves(image):
    """Whether enough of the picture is covered, and its shape is not too long."""
    height, width = image.shape[:2]
    longest, shortest = max(height, width), min(height, width)
    return (image[..., 3] > 0.5).mean() > 0.12 and longest >= 80 and longest <= 5 * shortest


class Shelf:
    """The tars of one renderer."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.tars, self.shown = folder, {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for tar in self.tars.values():
            tar.close()

    def add(self, kind, held, image):
        """Adds a picture of floats."""
        scale = SIDE / max(image.shape[:2])
        if scale < 1:
            image = np.dstack([image[..., :3] * image[..., 3:], image[..., 3:]])
            image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            image[..., :3] /= np.maximum(image[..., 3:], 1e-3)
        picture = Image.fromarray((image.clip(0, 1) * 255).round().astype(np.uint8))
        name = f"{kind}-{'held' if held else 'train'}.tar"
        if name not in self.tars:
            self.tars[name] = tarfile.open(self.folder / name, "w")
        content = io.BytesIO()
        picture.save(content, "WEBP", quality=88)
        member = tarfile.TarInfo(f"{len(self.tars[name].getmembers()):05d}.webp")
        member.size = content.tell()
        content.seek(0)
        self.tars[name].addfile(member, content)
        if len(self.shown) < 60:
            self.shown.append(picture)

    def report(self, sheet=None):
        """Prints what there is, and draws the sheet."""
        for name, tar in self.tars.items():
            print(f"{name}: {len(tar.getmembers())} cut-outs")
        if sheet and self.shown:
            cell, across = 180, 10
            board = Image.new("RGB", (cell * across, cell * -(-len(self.shown) // across)), (120, 160, 200))
            for number, picture in enumerate(self.shown):
                small = picture.copy()
                small.thumbnail((cell - 6, cell - 6))
                board.paste(small, (number % across * cell + 3, number // across * cell + 3), small)
            board.save(sheet)
