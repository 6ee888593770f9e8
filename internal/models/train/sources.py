"""The table of photographs, and the only way to read one of them.

Every photograph is named in sources.csv by package, file and SHA-256. Those
whose use is `evaluate` are held out: reading one of them for training, under
whatever name, is an error.
"""

import bz2
import csv
import dataclasses
import hashlib
import io
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
EVAL = HERE.parents[2] / "testdata" / "eval"
Image.MAX_IMAGE_PIXELS = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A row of sources.csv.

    use is train (both tasks), upscale (the upscalers, and subjects of background
    removal where there is a mask), ground (behind those subjects only), validate
    (curves only) or evaluate (held out). shrink is how much smaller the photograph is used,
    which removes the traces of its compression. box is the part of it that is
    used, "x y width height" in pixels of the file; all of it where it is empty.
    """

    use: str
    registry: str
    package: str
    version: str
    path: str
    shrink: float
    licence: str
    copyleft: bool
    sha256: str
    box: str

    @property
    def name(self):
        return f"{self.package}/{self.path}"


def table():
    """All rows of sources.csv."""
    with open(HERE / "sources.csv", newline="") as f:
        return [
            Source(**{**row, "shrink": float(row["shrink"]), "copyleft": row["copyleft"] == "yes"})
            for row in csv.DictReader(f)
        ]


def held_out():
    """The SHA-256 of everything that no training may see: held-out rows, and whatever has a mask to measure by."""
    with open(EVAL / "masks.csv", newline="") as f:
        masked = {row["sha256"] for row in csv.DictReader(f)}
    return masked | {s.sha256 for s in table() if s.use == "evaluate"}


def forbid_held_out(checksums):
    """Ends the program when one of the checksums belongs to a held-out photograph."""
    seen = held_out().intersection(checksums)
    if seen:
        raise SystemExit(f"held-out photographs must not be trained on: {sorted(seen)}")


def read(cache, source):
    """The file's bytes, verified.

    `FILE@OFFSET` is a picture inside a Qt resource file, whose length is in
    the four bytes before it.
    """
    path, _, offset = source.path.partition("@")
    file = pathlib.Path(cache) / source.package / path
    if not file.exists():
        raise SystemExit(f"{file} is missing: run `python -m fetch` first")
    content = file.read_bytes()
    if offset:
        start = int(offset)
        content = content[start : start + int.from_bytes(content[start - 4 : start], "big")]
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise SystemExit(f"{source.name} is not the file that sources.csv names")
    return content


def picture(cache, source):
    """The photograph as RGB, shrunk as the table says."""
    content = read(cache, source)
    if source.path.endswith("face.dat"):  # SciPy's raccoon: packed raw pixels
        pixels = np.frombuffer(bz2.decompress(content), np.uint8).reshape(768, 1024, 3)
        image = Image.fromarray(pixels)
    else:
        image = Image.open(io.BytesIO(content)).convert("RGB")
        image.info.clear()  # a colour profile would travel into what is saved, and the worker would apply it
    if source.box:
        x, y, width, height = map(int, source.box.split())
        image = image.crop((x, y, x + width, y + height))
    if source.shrink == 1:
        return image
    size = (int(image.width / source.shrink), int(image.height / source.shrink))
    return image.resize(size, Image.BICUBIC)
