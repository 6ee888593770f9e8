"""Fetches the packages that cut-outs are made from, and unpacks them into a cache.

    python -m render.fetch --cache data/packages

Needs apt-get and dpkg (Debian 12), git, and 5 GB. packages.csv names versions
and checksums; that of MakeHuman is its commit. Repeating it fetches what is
missing.
"""

import argparse
import csv
import hashlib
import pathlib
import subprocess
import tempfile

MAKEHUMAN = "https://github.com/makehumancommunity/makehuman.git"
ASSETS = ("LICENSE.md", "makehuman/data/3dobjs/base.obj", "makehuman/data/rigs", "makehuman/data/targets")


def debian(row, target):
    with tempfile.TemporaryDirectory() as folder:
        package = f"{row['package']}={row['version']}"
        subprocess.run(["apt-get", "download", "--quiet", package], cwd=folder, check=True)
        (archive,) = pathlib.Path(folder).glob("*.deb")
        with open(archive, "rb") as f:
            if hashlib.file_digest(f, "sha256").hexdigest() != row["sha256"]:
                raise SystemExit(f"{package} is not the file that packages.csv names")
        subprocess.run(["dpkg", "-x", archive, target], check=True)


def git(row, target):
    target.mkdir()

    def run(*arguments):
        subprocess.run(["git", "-C", target, *arguments], check=True)

    run("init", "--quiet")
    run("fetch", "--quiet", "--depth", "1", MAKEHUMAN, row["version"])
    run("checkout", "--quiet", row["version"], "--", *ASSETS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with open(pathlib.Path(__file__).with_name("packages.csv"), newline="") as f:
        rows = list(csv.DictReader(f))
    for row in rows:
        target = arguments.cache / row["package"]
        if not target.exists():
            print("fetching", row["package"], row["version"], flush=True)
            {"debian": debian, "git": git}[row["registry"]](row, target)
    print(len(rows), "packages are there")


if __name__ == "__main__":
    main()
