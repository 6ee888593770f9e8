"""Renders the models of Debian's sweethome3d-furniture: furniture, household objects, vehicles, and people (rl).

    python -m render.objects --cache data/packages --count 2000 --out data/cutouts

makes obj-train.tar, obj-held.tar and rl-train.tar.
"""

import argparse
import io
import pathlib
import posixpath
import zipfile
import zlib

import numpy as np
from PIL import Image

from . import raster, scene, shelf

FOLDER = "sweethome3d-furniture/usr/share/sweethome3d/furniture"
UNSUITABLE = ("door", "window", "curtain", "stair", "rug", "carpet")
LARGEST = 3_500_000  # bytes of a model


def models(folder):
    """(archive, name, kind, held out) of every model that serves."""
    for path in sorted(folder.glob("*.sh3f")):
        archive = zipfile.ZipFile(path)
        for entry in archive.infolist():
            name = entry.filename
            if name.endswith(".obj") and entry.file_size < LARGEST and not any(w in name.lower() for w in UNSUITABLE):
                held = zlib.crc32(posixpath.basename(name)[:5].encode()) % 100 < 10
                yield archive, name, "rl" if "Reallusion" in path.name else "obj", held


def materials(archive, name):
    """The materials of an MTL file: colour, opacity, shine and texture."""
    found, material = {}, None
    try:
        lines = archive.read(name).decode("latin1").split("\n")
    except KeyError:
        return found
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "newmtl":
            material = found[rest.strip()] = plain()
        elif material is None:
            continue
        elif word == "Kd":
            material["colour"] = np.float32(rest.split()[:3])
        elif word == "Ks":
            material["shine"] = float(np.mean(np.float32(rest.split()[:3])))
        elif word == "d":
            material["opacity"] = float(rest.split()[-1])
        elif word == "map_Kd":
            try:
                texture = archive.read(posixpath.join(posixpath.dirname(name), rest.strip()))
                material["texture"] = np.asarray(Image.open(io.BytesIO(texture)).convert("RGB"), np.float32) / 255
            except (KeyError, OSError):
                pass  # some models name textures that the package lacks
    return found


def plain():
    return {"colour": np.float32([0.7, 0.7, 0.7]), "opacity": 1.0, "shine": 0.0, "texture": None}


def load(archive, name):
    """The opaque meshes of an OBJ file: (vertices, normals, texture coordinates, material)."""
    vertices, uvs, normals, faces, known, material = [], [], [], {}, {}, None
    for line in archive.read(name).decode("latin1").split("\n"):
        word, _, rest = line.strip().partition(" ")
        if word == "v":
            vertices.append(rest.split()[:3])
        elif word == "vt":
            uvs.append(rest.split()[:2])
        elif word == "vn":
            normals.append(rest.split()[:3])
        elif word == "usemtl":
            material = rest.strip()
        elif word == "mtllib":
            known.update(materials(archive, posixpath.join(posixpath.dirname(name), rest.strip())))
        elif word == "f":
            corners = [tuple(int(i) if i else 0 for i in (c + "//").split("/")[:3]) for c in rest.split()]
            for i in range(1, len(corners) - 1):
                faces.setdefault(material, []).extend((corners[0], corners[i], corners[i + 1]))
    vertices, uvs, normals = np.float32(vertices), np.float32(uvs or [[0, 0]]), np.float32(normals)
    meshes = []
    for key, corners in faces.items():
        look = known.get(key) or plain()
        if look["opacity"] < 0.35:
            continue
        index = np.array(corners)
        index = np.where(index > 0, index - 1, index + [len(vertices), len(uvs), len(normals)])
        points = vertices[index[:, 0]]
        if len(normals) and (np.array(corners)[:, 2] != 0).all():
            directions = normals[index[:, 2]]
        else:
            a, b, c = points[0::3], points[1::3], points[2::3]
            directions = np.repeat(np.cross(b - a, c - a), 3, 0)
        meshes.append((points, raster.unit(directions), uvs[index[:, 1].clip(0, len(uvs) - 1)], look))
    return meshes


def part(mesh, tint):
    """A mesh as a Part; tint recolours its grey value, or is None."""
    points, normals, uvs, look = mesh

    def colour(at):
        if look["texture"] is None:
            seen = np.broadcast_to(look["colour"], at(points).shape)
        else:
            texture, q = look["texture"], at(uvs) % 1
            height, width = texture.shape[:2]
            rows = ((1 - q[:, 1]) * height).astype(int).clip(0, height - 1)
            seen = texture[rows, (q[:, 0] * width).astype(int).clip(0, width - 1)]
        return seen if tint is None else seen.mean(1, keepdims=True) * tint

    triangles = np.arange(len(points), dtype=np.int32).reshape(-1, 3)
    return scene.Part(points, normals, triangles, colour, gloss=0.05 + 0.6 * look["shine"])


def picture(meshes, random, size=600):
    """One view of a model, or None."""
    points = np.concatenate([m[0] for m in meshes])
    centre = (points.min(0) + points.max(0)) / 2
    radius = np.linalg.norm(points - centre, axis=1).max()
    yaw = random.uniform(0, 6.283) if random.random() < 0.5 else random.normal(0, 0.7)
    pitch = random.uniform(-0.05, 0.45) if random.random() < 0.8 else random.uniform(0.4, 1.2)
    field = random.uniform(0.2, 0.9)
    camera = scene.Camera(centre, radius / np.sin(field / 2) * 1.02, field, (size, size), yaw, pitch)
    tints = random.random() < 0.4
    parts = [part(m, random.dirichlet([2, 2, 2]) * random.uniform(0.6, 2.4) if tints else None) for m in meshes]
    return scene.render(parts, camera, scene.Light.drawn(random, camera), radius, random, least=4000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shelf.arguments(parser)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    found = list(models(arguments.cache / FOLDER))
    order = random.permutation(len(found))
    with shelf.Shelf(arguments.out) as tars:
        for turn in range(arguments.count):
            archive, name, kind, held = found[order[turn % len(order)]]
            for _ in range(8 if kind == "rl" and not arguments.sheet else 1):
                made = picture(load(archive, name), random)
                if made and shelf.serves(made[0]):
                    tars.add(kind, held and kind != "rl", made[0])
        tars.report(arguments.sheet)


if __name__ == "__main__":
    main()
