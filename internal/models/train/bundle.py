"""Packs the training photographs into a zip that fits onto a machine without network.

    python -m bundle --cache ~/.cache/pictor-train --out data/photographs.zip

Every photograph is shrunk as the table says, to at most --side pixels, and
stored as JPEG 4:4:4 of quality 95, whose losses (about 45 dB) lie below what
the models can tell. The zip holds the table's rows beside them, so that
training checks the checksums of the originals against the held-out list.
"""

import argparse
import io
import json
import pathlib
import zipfile

from PIL import Image

import sources

USES = ("train", "upscale", "validate")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--side", type=int, default=1280, help="longest side in pixels")
    parser.add_argument("--uses", default=",".join(USES), help="comma-separated uses of the table")
    parser.add_argument("--limit", type=float, default=50, help="largest size of the zip in MiB")
    arguments = parser.parse_args()

    rows = [s for s in sources.table() if s.use in arguments.uses.split(",")]
    sources.forbid_held_out(s.sha256 for s in rows)  # --uses evaluate ends here
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    index, pixels = [], 0
    with zipfile.ZipFile(arguments.out, "w", zipfile.ZIP_STORED) as bundle:
        for number, source in enumerate(rows):
            image = sources.picture(arguments.cache, source)
            if max(image.size) > arguments.side:
                image.thumbnail((arguments.side, arguments.side), Image.BICUBIC, reducing_gap=None)
            file = f"{number:03d}.jpg"
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=95, subsampling=0)
            bundle.writestr(file, buffer.getvalue())
            index.append({
                "file": file, "name": source.name, "use": source.use,
                "copyleft": source.copyleft, "sha256": source.sha256,
            })
            pixels += image.width * image.height
        bundle.writestr("index.json", json.dumps(index, indent=1))
    size = arguments.out.stat().st_size / 2**20
    print(f"{len(rows)} photographs, {pixels / 1e6:.0f} megapixels, {size:.1f} MiB")
    if size > arguments.limit:
        raise SystemExit(f"the bundle is larger than {arguments.limit} MiB: choose a smaller --side")


def photographs(bundle, uses, copyleft=True):
    """Yields (SHA-256 of the original, RGB image) of a bundle, and refuses held-out ones."""
    with zipfile.ZipFile(bundle) as archive:
        index = json.loads(archive.read("index.json"))
        sources.forbid_held_out(entry["sha256"] for entry in index)
        for entry in index:
            if entry["use"] in uses and (copyleft or not entry["copyleft"]):
                yield entry["sha256"], Image.open(io.BytesIO(archive.read(entry["file"]))).convert("RGB")


if __name__ == "__main__":
    main()
