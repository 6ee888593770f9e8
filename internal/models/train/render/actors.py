"""Renders the actors of Debian's 0ad-data: animals, people, buildings and plants (CC-BY-SA 3.0).

    python -m render.actors --cache data/packages --count 1400 --out data/cutouts

makes zad-train.tar and zad-held.tar. An actor names, at random, a mesh, its
textures, animations and further actors attached to its bones.
"""

import argparse
import dataclasses
import io
import posixpath
import struct
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib

import cv2
import numpy as np
from PIL import Image

from . import raster, scene, shelf

ARCHIVE = "0ad-data/usr/share/games/0ad/mods/public/public.zip"
# Folders of actors, and how often each is taken.
GROUPS = {
    "fauna/": 0.46, "units/": 0.28, "props/structures/": 0.05, "props/units/": 0.05, "flora/": 0.06, "structures/": 0.10,
}
UNSUITABLE = ("wall", "field", "palisade")
UNATTACHED = ("selection", "particle", "smoke", "fire", "dust", "blood", "garrison", "water", "light")


@dataclasses.dataclass
class Mesh:
    """A PMD file; a bone is a place and a quaternion."""

    vertices: np.ndarray
    normals: np.ndarray
    uvs: np.ndarray
    bones_of: np.ndarray
    weights: np.ndarray
    triangles: np.ndarray
    bones: np.ndarray
    points: dict  # attachment point: (place and quaternion, bone or 255)


class Reader:
    """Takes little-endian values from bytes, one after the other."""

    def __init__(self, content, start):
        self.content, self.at = content, start

    def number(self):
        self.at += 4
        return struct.unpack_from("<I", self.content, self.at - 4)[0]

    def bytes(self, count):
        self.at += count
        return self.content[self.at - count : self.at]

    def floats(self, *shape):
        return np.frombuffer(self.bytes(4 * int(np.prod(shape))), "<f4").reshape(shape)


def read_mesh(content):
    reader = Reader(content, 4)
    version = reader.number()
    reader.number()  # the size
    count = reader.number()
    layers = reader.number() if version >= 4 else 1
    floats = 24 + 8 * layers
    rows = np.frombuffer(reader.bytes(count * (floats + 20)), np.uint8).reshape(count, floats + 20)
    values = rows[:, :floats].copy().view("<f4")
    triangles = reader.number()
    triangles = np.frombuffer(reader.bytes(triangles * 6), "<u2").reshape(-1, 3).astype(np.int32)
    bones = reader.floats(reader.number(), 7)
    points = {}
    for _ in range(reader.number() if version >= 2 else 0):
        name = reader.bytes(reader.number()).decode()
        place = reader.floats(7)
        points[name] = place, reader.bytes(1)[0]
    return Mesh(
        values[:, :3].astype(float), values[:, 3:6].astype(float), values[:, 6:8], rows[:, floats : floats + 4],
        rows[:, floats + 4 :].copy().view("<f4").astype(float), triangles, bones.astype(float), points,
    )


def read_frames(content):
    """The frames of a PSA file: places and quaternions of the bones."""
    reader = Reader(content, 12)
    reader.bytes(reader.number())  # the name
    reader.bytes(4)  # how long a frame lasts
    bones, frames = reader.number(), reader.number()
    return reader.floats(frames, bones, 7).astype(float)


def matrices(bones):
    """4 x 4 matrices of places and quaternions."""
    x, y, z, w = bones[:, 3:].T
    result = np.tile(np.eye(4), (len(bones), 1, 1))
    result[:, :3, :3] = np.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ], -1).reshape(-1, 3, 3)
    result[:, :3, 3] = bones[:, :3]
    return result


@dataclasses.dataclass
class Actor:
    """What was drawn from an actor's variants."""

    mesh: str | None = None
    material: str = ""
    textures: dict = dataclasses.field(default_factory=dict)
    animations: list = dataclasses.field(default_factory=list)
    props: dict = dataclasses.field(default_factory=dict)


class Game:
    """The game's files."""

    def __init__(self, path, random):
        self.archive, self.random = zipfile.ZipFile(path), random
        self.names = set(self.archive.namelist())

    def actors(self, folder):
        prefix = f"art/actors/{folder}"
        found = (n[len("art/actors/") :] for n in self.names if n.startswith(prefix) and n.endswith(".xml"))
        return sorted(n for n in found if not any(w in n for w in UNSUITABLE))

    def first(self, *names):
        """The bytes of the first of these files that exists, or None."""
        return next((self.archive.read(n) for n in names if n in self.names), None)

    def texture(self, name):
        base = f"art/textures/skins/{name}"
        content = self.first(f"{base}.cached.dds", base.replace(".png", ".dds") + ".cached.dds", base)
        if content is None:
            return None
        try:
            return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))
        except (OSError, NotImplementedError):
            return None  # a few textures have formats that Pillow does not read

    def take(self, actor, variant, depth=0):
        """Adds what a variant says to the actor."""
        file = variant.get("file")
        content = self.first(f"art/variants/{file}") if file and depth < 4 else None
        if content is not None:
            self.take(actor, ElementTree.fromstring(content), depth + 1)
        actor.mesh = (variant.findtext("mesh") or "").strip() or actor.mesh
        actor.textures.update((t.get("name"), t.get("file")) for t in variant.findall("textures/texture"))
        for animation in variant.findall("animations/animation"):
            if animation.get("file") and not (animation.get("name") or "").lower().startswith(("death", "corpse")):
                actor.animations.append(animation.get("file"))
        for prop in variant.findall("props/prop"):
            if prop.get("actor"):
                actor.props.setdefault(prop.get("attachpoint"), []).append(prop.get("actor"))
            else:
                actor.props.pop(prop.get("attachpoint"), None)

    def actor(self, name):
        root = ElementTree.fromstring(self.archive.read(f"art/actors/{name}"))
        actor = Actor(material=root.findtext("material") or "")
        for group in root.findall("group"):
            variants = group.findall("variant")
            odds = np.array([float(v.get("frequency") or 0) for v in variants])
            if odds.sum() == 0:
                odds[0] = 1
            self.take(actor, variants[self.random.choice(len(variants), p=odds / odds.sum())])
        return actor

    def pose(self, actor, count):
        """A random frame of one of the actor's animations that fits the bones, as matrices, or None."""
        for name in self.random.permutation(actor.animations)[:3] if actor.animations else ():
            content = self.first(f"art/animation/{name}.cached.psa", f"art/animation/{name}")
            if content is not None:
                frames = read_frames(content)
                if len(frames) and frames.shape[1] == count:
                    return matrices(frames[self.random.integers(len(frames))])
        return None

    def parts(self, name, place=np.eye(4), depth=0, tint=None):
        """The posed meshes of an actor and of what is attached to it, as (Part, has a texture)."""
        actor = self.actor(name)
        content = actor.mesh and self.first(f"art/meshes/{actor.mesh}.cached.pmd", f"art/meshes/{actor.mesh}")
        if not content or not content.startswith(b"PSMD"):
            return []
        mesh = read_mesh(content)
        vertices, normals, bones = mesh.vertices, mesh.normals, None
        if len(mesh.bones):
            if depth and any(word in name for word in ("hair", "mane", "tail")):
                return []  # these follow the bones of what they are attached to
            rest = matrices(mesh.bones)
            bones = self.pose(actor, len(rest))
            bones = rest if bones is None else bones
            moves = np.concatenate([bones @ np.linalg.inv(rest), np.eye(4)[None]])
            owners = np.minimum(mesh.bones_of.astype(int), len(moves) - 1)
            weights = np.where(mesh.bones_of == 255, 0, mesh.weights)
            weights[weights.sum(1) < 1e-4, 0] = 1
            weights /= weights.sum(1, keepdims=True)
            blended = (moves[owners] * weights[:, :, None, None]).sum(1)
            vertices = np.einsum("nij,nj->ni", blended[:, :3, :3], vertices) + blended[:, :3, 3]
            normals = np.einsum("nij,nj->ni", blended[:, :3, :3], normals)
        vertices, normals = vertices @ place[:3, :3].T + place[:3, 3], raster.unit(normals @ place[:3, :3].T)
        base = actor.textures.get("baseTex")
        texture = self.texture(base) if base else None
        tint = self.random.uniform(0.1, 0.9, 3) if tint is None else tint
        found = [(part(vertices, normals, mesh, texture, actor.material, tint), texture is not None)]
        for point, names in actor.props.items() if depth < 3 else ():
            at = self.attached(point, mesh, bones)
            for other in names:
                known = f"art/actors/{other}" in self.names and not any(w in other for w in UNATTACHED)
                if known and at is not None:
                    found += self.parts(other, place @ at, depth + 1, tint)
        return found

    @staticmethod
    def attached(point, mesh, bones):
        """Where an attachment point is, or None if the mesh lacks it."""
        if point in (None, "root"):
            return np.eye(4)
        if point not in mesh.points:
            return None
        place, bone = mesh.points[point]
        matrix = matrices(place[None].astype(float))[0]
        return bones[bone] @ matrix if bones is not None and bone < len(bones) else matrix


def part(vertices, normals, mesh, texture, material, tint):
    """A posed mesh as a Part; tint is the player's colour, which shows where such a texture is transparent."""

    def colour(at):
        if texture is None:
            return np.broadcast_to(tint, at(vertices).shape)
        q, (height, width) = at(mesh.uvs) % 1, texture.shape[:2]
        x, y = np.float32(q[:, 0] * width - 0.5), np.float32((1 - q[:, 1]) * height - 0.5)
        rows = -len(x) % 512  # OpenCV's remap has a limit of 32,767 a side
        x, y = (np.pad(v, (0, rows)).reshape(-1, 512) for v in (x, y))
        seen = cv2.remap(texture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP).reshape(-1, 4)[: len(q)] / 255
        if "player" not in material:
            return seen[:, :3]
        grey = np.clip(seen[:, :3].mean(1, keepdims=True) * 1.6, 0.2, 1.2)
        return seen[:, :3] * seen[:, 3:] + tint * (1 - seen[:, 3:]) * grey

    holes = None
    if texture is not None and "trans" in material and "no_trans" not in material and "player" not in material:
        holes = mesh.uvs[mesh.triangles].reshape(-1, 6), texture[..., 3]
    return scene.Part(vertices, normals, mesh.triangles, colour, wrap=0.18, gloss=0.05, sharpness=16, holes=holes)


def picture(game, name, random, size=(720, 600)):
    """One view of an actor, or None."""
    found = game.parts(name)
    if not any(textured for _, textured in found):
        return None
    parts = [p for p, _ in found]
    points = np.concatenate([p.vertices for p in parts])
    centre = (points.min(0) + points.max(0)) / 2
    radius = np.linalg.norm(points - centre, axis=1).max()
    if radius < 0.05:
        return None
    pitch = random.uniform(-0.05, 0.3) if random.random() < 0.8 else random.uniform(0.3, 0.8)
    field, nearer = random.uniform(0.3, 0.9), 1.0
    if random.random() < 0.18:
        nearer = random.uniform(1.3, 2.2)
        centre = centre + [0, random.uniform(0, 0.5) * (points[:, 1].max() - centre[1]), 0]
    distance = radius / np.sin(field / 2) * 1.02 / nearer
    camera = scene.Camera(centre, distance, field, size, random.uniform(0, 6.283), pitch)
    return scene.render(parts, camera, scene.Light.drawn(random, camera), radius, random, least=3000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shelf.arguments(parser)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    game = Game(arguments.cache / ARCHIVE, random)
    groups = [game.actors(folder) for folder in GROUPS]
    odds = np.array(list(GROUPS.values()))
    made = 0
    with shelf.Shelf(arguments.out) as tars:
        while made < arguments.count:
            names = groups[random.choice(len(groups), p=odds / odds.sum())]
            name = names[random.integers(len(names))]
            found = picture(game, name, random)
            if found and shelf.serves(found[0]):
                made += 1
                tars.add("zad", zlib.crc32(posixpath.basename(name)[:6].encode()) % 100 < 10, found[0])
        tars.report(arguments.sheet)


if __name__ == "__main__":
    main()
