"""Fetches the packages that sources.csv names and unpacks them into a cache.

    python -m fetch --cache ~/.cache/pictor-train

Needs apt-get and dpkg (Debian 12) and npm. Repeating it fetches what is missing.
"""

import argparse
import pathlib
import subprocess
import tarfile
import tempfile

import sources


def fetch(registry, package, version, target):
    """Downloads one package and unpacks it."""
    with tempfile.TemporaryDirectory() as folder:
        if registry == "debian":
            command = ["apt-get", "download", "--quiet", f"{package}={version}"]
            subprocess.run(command, cwd=folder, check=True)
            (archive,) = pathlib.Path(folder).glob("*.deb")
            subprocess.run(["dpkg", "-x", archive, target], check=True)
        elif registry == "npm":
            subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
            (archive,) = pathlib.Path(folder).glob("*.tgz")
            with tarfile.open(archive) as tar:
                tar.extractall(target, filter="data")
        else:
            raise SystemExit(f"unknown registry {registry}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--uses", default="train,upscale,ground,validate,evaluate", help="comma-separated uses")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    rows = [s for s in sources.table() if s.use in arguments.uses.split(",")]
    for registry, package, version in sorted({(s.registry, s.package, s.version) for s in rows}):
        if not (arguments.cache / package).exists():
            print("fetching", package, version, flush=True)
            fetch(registry, package, version, arguments.cache / package)
    for source in rows:
        sources.read(arguments.cache, source)
    print(len(rows), "pictures are there and verified")


if __name__ == "__main__":
    main()
