"""Packs the photographs cut out in Debian's tuxpaint-stamps-default (GPL-2).

    python -m render.stamps --cache data/packages --out data/cutouts

makes stamp-train.tar and stamp-held.tar: RGBA WebP files of at most 340
pixels, without drawings and without what fills its whole rectangle. An eighth
is held out, chosen by the beginning of the name, so that pictures of one kind
stay together: those the shipped model's first training held out, too.
"""

import argparse
import pathlib
import re
import zlib

import numpy as np
from PIL import Image

from . import shelf

FOLDER = "tuxpaint-stamps-default/usr/share/tuxpaint/stamps"
UNSUITABLE = ("symbols", "fireworks", "confetti", "lightning", "sun", "cartoon", "naturalforces", "roadsigns", "flags")


def cutout(path):
    """The picture without its empty border, or None if it does not serve."""
    image = Image.open(path).convert("RGBA")
    alpha = np.asarray(image)[..., 3]
    rows, columns = (np.flatnonzero((alpha > 20).any(axis)) for axis in (1, 0))
    if len(rows) < 20 or len(columns) < 20:
        return None
    image = image.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    share = np.asarray(image)[..., 3].mean() / 255
    if not 0.18 < share < 0.93 or max(image.size) > 4.5 * min(image.size):
        return None
    return np.asarray(image, np.float32) / 255


def held_out(path):
    stem = re.sub("[^a-z]", "", path.name.lower().replace("mirror", "").replace(".png", ""))[:4]
    return zlib.crc32(stem.encode()) % 100 < 12


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sheet", type=pathlib.Path, help="a PNG that shows the first cut-outs")
    arguments = parser.parse_args()
    with shelf.Shelf(arguments.out) as tars:
        for path in sorted((arguments.cache / FOLDER).rglob("*.png")):
            if any(word in str(path.relative_to(arguments.cache / FOLDER)) for word in UNSUITABLE):
                continue
            image = cutout(path)
            if image is not None:
                tars.add("stamp", held_out(path), image)
        tars.report(arguments.sheet)


if __name__ == "__main__":
    main()
