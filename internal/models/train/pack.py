"""Spreads the training cut-outs over folders that fit onto a machine without network.

    python -m pack --cutouts CUTOUTS --out data/cutouts --limit 45

makes data/cutouts-1, data/cutouts-2 ... of at most --limit MiB each. The
held-out tars are left behind.
"""

import argparse
import pathlib
import shutil


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutouts", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=float, default=45)
    arguments = parser.parse_args()
    tars = sorted(arguments.cutouts.glob("*-train.tar"), key=lambda p: p.stat().st_size, reverse=True)
    if not tars:
        raise SystemExit(f"no *-train.tar in {arguments.cutouts}")
    parts = []
    for tar in tars:
        size = tar.stat().st_size / 2**20
        if size > arguments.limit:
            raise SystemExit(f"{tar} alone has {size:.1f} MiB")
        part = next((p for p in parts if p[0] + size <= arguments.limit), None)
        if part is None:
            parts.append(part := [0.0, []])
        part[0] += size
        part[1].append(tar)
    for number, (size, chosen) in enumerate(parts, 1):
        folder = arguments.out.with_name(f"{arguments.out.name}-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        for tar in chosen:
            shutil.copyfile(tar, folder / tar.name)
        print(f"{folder}: {size:.1f} MiB, {', '.join(t.name for t in chosen)}")


if __name__ == "__main__":
    main()
