"""Evaluates the shipped models.

    python -m evaluate prepare --cache CACHE --folder out/eval/input
    (the pictures are rendered by internal/render/eval)
    python -m evaluate report --folder out/eval/input --rendered out/eval/rendered --out out/eval

    python -m evaluate compare --folder out/eval/input --rendered out/eval/rendered --before out/eval/before

`prepare` makes the inputs of the held-out photographs and cut-outs, `report`
the tables (upscale.md, remove-bg.md) and the sheets to look at; `compare` tells
a model's cut-outs from another's on the same pictures.
"""

import argparse
import pathlib

from . import cutouts, upscaling


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("--cache", type=pathlib.Path, required=True)
    prepare.add_argument("--folder", type=pathlib.Path, required=True)
    report = commands.add_parser("report")
    report.add_argument("--folder", type=pathlib.Path, required=True)
    report.add_argument("--rendered", type=pathlib.Path, required=True)
    report.add_argument("--out", type=pathlib.Path, required=True)
    report.add_argument("--part", choices=("upscale", "remove-bg"), action="append", help="both, if not given")
    compare = commands.add_parser("compare")
    for option in ("--folder", "--rendered", "--before"):
        compare.add_argument(option, type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        print("\n".join(cutouts.compare(arguments.folder, arguments.rendered, arguments.before)))
        return
    if arguments.command == "prepare":
        upscaling.prepare(arguments.cache, arguments.folder)
        cutouts.prepare(arguments.cache, arguments.folder)
        return
    sheets = arguments.out / "sheets"
    sheets.mkdir(parents=True, exist_ok=True)
    parts = {"upscale": upscaling.report, "remove-bg": cutouts.report}
    for part in arguments.part or parts:
        lines = parts[part](arguments.folder, arguments.rendered, sheets)
        (arguments.out / f"{part}.md").write_text("\n".join(lines) + "\n")
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
