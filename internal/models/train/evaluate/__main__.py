"""Evaluates the shipped models.

    python -m evaluate prepare --cache CACHE --folder out/eval/input
    (the pictures are rendered by internal/render/eval)
    python -m evaluate report --folder out/eval/input --rendered out/eval/rendered --out out/eval

`prepare` makes the inputs of the held-out photographs and cut-outs, `report`
the tables (report.md) and the sheets to look at.
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
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        upscaling.prepare(arguments.cache, arguments.folder)
        cutouts.prepare(arguments.cache, arguments.folder)
        return
    sheets = arguments.out / "sheets"
    sheets.mkdir(parents=True, exist_ok=True)
    lines = ["## Upscaling\n", *upscaling.report(arguments.folder, arguments.rendered, sheets)]
    lines += ["## Remove background\n", *cutouts.report(arguments.folder, arguments.rendered, sheets)]
    (arguments.out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
