"""Draws the two layers of a training picture: a subject with alpha, and what lies behind it.

Subjects are rendered cut-outs (people, animals, objects), shapes drawn here and
the subjects of photographs with a mask, which also come with the ground they
were taken before; other grounds are photographs, studio walls, floors and
textures, with sharp clutter and cut-off bystanders in front, as photographs
have them. What the device does better in batches (light, shadow, blur, noise,
JPEG) is in compose.py.
"""

import io
import pathlib
import tarfile

import cv2
import numpy as np
from PIL import Image

import bundle

from .scenery import Scenery

cv2.setNumThreads(1)

# How often a subject comes from each source; those that are absent are left out.
MIX = {
    "photo": 0.2, "bust": 0.1, "stamp": 0.26, "mh": 0.12, "mhb": 0.18, "rl": 0.06, "zad": 0.11, "obj": 0.11,
    "blob": 0.09, "fringe": 0.05, "glass": 0.02,
}
PEOPLE = ("mh", "mhb", "rl", "bust")
DRAWN = ("blob", "fringe", "glass")
COPYLEFT = ("zad", "stamp")
MASKS = pathlib.Path(__file__).parent.parent / "masks"
SCENES = 0.2  # the share of pictures that are a photograph with a mask as it was taken


def cutouts(folder, copyleft=True, part="train"):
    """The cut-outs by kind, RGBA bytes; part is train or held."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob(f"*-{part}.tar")):
        kind = path.name.split("-")[0]
        if not copyleft and kind in COPYLEFT:
            continue
        with tarfile.open(path) as tar:
            found[kind] = [
                np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGBA"))
                for member in sorted(tar.getmembers(), key=lambda m: m.name)
            ]
    return found


def photographs(path, copyleft=True, uses=("train", "ground"), side=640):
    """The grounds: RGB bytes, at most `side` pixels a side."""
    found = []
    for _, image in bundle.photographs(path, uses, copyleft):
        image.thumbnail((side, side), Image.BOX)
        found.append(np.asarray(image))
    return found


def scenes(path, copyleft=True):
    """The photographs that have a mask: RGBA bytes, of the mask's size."""
    found = []
    for checksum, image in bundle.photographs(path, ("upscale",), copyleft):
        mask = MASKS / f"{checksum[:12]}.png"
        if mask.exists():
            alpha = Image.open(mask)
            found.append(np.dstack([np.asarray(image.resize(alpha.size, Image.BOX)), np.asarray(alpha)]))
    return found


def subjects(scenes):
    """The subjects of photographs by kind: whole ones (photo) and those that only the lower edge cuts off (bust)."""
    found = {"photo": [], "bust": []}
    for scene in scenes:
        top, bottom, left, right = ((scene[edge][..., 3] > 128).any() for edge in (
            np.s_[:2], np.s_[-2:], np.s_[:, :2], np.s_[:, -2:],
        ))
        if not (top or left or right):
            found["bust" if bottom else "photo"].append(scene)
    return {kind: those for kind, those in found.items() if those}


class Painter(Scenery):
    """Draws layers; the same seed gives the same layers."""

    def __init__(self, cutouts, grounds, side, seed, scenes=()):
        super().__init__(grounds, side, seed)
        self.subjects, self.scenes = {**cutouts, **subjects(scenes)}, scenes
        self.kinds = [k for k in MIX if k in self.subjects or k in DRAWN]
        odds = np.array([MIX[k] for k in self.kinds])
        self.odds = odds / odds.sum()

    def subject(self):
        """A subject as RGBA floats, and its kind."""
        kind = self.kinds[int(self.random.choice(len(self.kinds), p=self.odds))]
        if kind in DRAWN:
            return getattr(self, kind)(self.side), kind
        chosen = self.subjects[kind]
        return chosen[int(self.random.integers(len(chosen)))].astype(np.float32) / 255, kind

    def marked(self, thing):
        """Parts of other colours inside the subject: clothes, spots, white and black pieces; and a texture."""
        height, width = thing.shape[:2]
        side = max(height, width)
        for _ in range(int(self.random.integers(1, 4))):
            part = cv2.GaussianBlur(self.outline(side), (0, 0), self.between(0.3, 3))
            shift = np.float32([[1, 0, self.random.normal(0, 0.2) * width], [0, 1, self.random.normal(0, 0.2) * height]])
            part = cv2.warpAffine(part, shift, (side, side))[:height, :width, None]
            kind = self.random.random()
            if kind < 0.3:
                colour = np.float32([1, 1, 1]) * self.between(0.85, 1) * self.random.uniform(0.95, 1, 3)
            elif kind < 0.55:
                colour = np.float32([1, 1, 1]) * self.between(0, 0.12)
            else:
                colour = self.material(side)[:height, :width]
            light = thing[..., :3].mean(2, keepdims=True)
            shade = 1 - 0.6 * self.random.random() * (1 - light / max(float(light.max()), 0.1))
            thing[..., :3] += (colour * shade - thing[..., :3]) * part * self.between(0.7, 1)
        if self.chance(0.5):
            texture = self.photograph(side, 0.1)[:height, :width].mean(2, keepdims=True)
            texture = texture - cv2.GaussianBlur(texture, (0, 0), 4)[..., None]
            thing[..., :3] += texture * self.between(0.3, 1.2)
        thing[..., :3] = thing[..., :3].clip(0, 1)

    def close(self):
        """A subject so near that the frame cuts it off, on an empty canvas."""
        side = self.side
        for _ in range(8):
            thing, kind = self.subject()
            rows, columns = (np.flatnonzero(thing[..., 3].max(axis) > 0.1) for axis in (1, 0))
            if len(rows) < 8 or len(columns) < 8 or kind in ("obj", *DRAWN) and self.chance(0.6):
                continue
            thing = thing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            if len(rows) > 2 * len(columns) and kind in PEOPLE:
                thing = thing[: int(len(rows) * self.between(0.2, 0.6))]
            height, width = thing.shape[:2]
            if self.chance(0.35):
                self.marked(thing)
            scale = self.between(0.9, 2.2) * side / np.sqrt(height * width)
            if kind in PEOPLE and self.chance(0.7):  # upright, cut off below, the head in the frame
                y, x = 0.28 * height, width * self.between(0.4, 0.6)
                to = side * np.array([np.clip(self.random.normal(0.5, 0.13), 0.15, 0.85), self.between(0.2, 0.55)])
                scale = self.between(0.75, 1.6) * side / width
            else:
                inside = np.argwhere(thing[..., 3] > 0.1)
                y, x = inside[int(self.random.integers(len(inside)))]
                to = side * np.clip(self.random.normal(0.5, 0.15, 2), 0.15, 0.85)
            angle = np.deg2rad(self.random.normal(0, 8))
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            turn = turn @ np.array([[self.between(0.88, 1.14), self.between(-0.1, 0.1)], [0, 1]]) * scale
            if self.chance(0.5):
                turn = turn @ np.diag([-1, 1])
            warp = np.hstack([turn, (to - turn @ np.array([x, y]))[:, None]]).astype(np.float32)
            thing[..., :3] *= thing[..., 3:]
            canvas = cv2.warpAffine(thing, warp, (side, side), flags=cv2.INTER_LINEAR if scale > 0.7 else cv2.INTER_AREA)
            canvas[..., :3] /= np.maximum(canvas[..., 3:], 1e-3)
            if 0.25 < canvas[..., 3].mean() < 0.88:
                return np.clip(canvas, 0, 1)
        return self.placed()

    def placed(self, size=None, centred=True):
        """A subject on an empty canvas; size is a share of the side."""
        side = self.side
        thing, kind = self.subject()
        rows, columns = (np.flatnonzero(thing[..., 3].max(axis) > 0.1) for axis in (1, 0))
        if len(rows) < 4 or len(columns) < 4:
            return self.placed(size, centred)
        thing = thing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        height, width = thing.shape[:2]
        if size is None and self.chance(0.25):
            self.marked(thing)
        bust = kind in ("mhb", "bust")
        if kind in ("mh", "rl") and height > 1.6 * width and self.chance(0.5):
            thing = thing[: int(height * self.between(0.22, 0.7))]
            height, bust = thing.shape[0], True
        wanted = (size or (self.between(0.35, 1.0) if self.chance(0.7) else self.between(0.8, 1.45))) * side
        scale = wanted / max(height, width) if self.chance(0.5) else 0.85 * wanted / np.sqrt(height * width)
        scale = min(scale, 1.6 * side / max(height, width))
        packed = thing.copy()
        packed[..., :3] *= packed[..., 3:]
        if scale < 0.6:
            packed = cv2.resize(packed, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            (height, width), scale = packed.shape[:2], 1.0
        angle = 0.0
        if self.chance(0.6):
            angle = np.deg2rad(self.random.normal(0, 10) if self.chance(0.7) else self.between(-60, 60))
            angle *= 1.0 if kind in DRAWN else 0.3
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        turn = turn @ np.array([[self.between(0.88, 1.14), self.between(-0.1, 0.1)], [0, 1]]) * scale
        if self.chance(0.5):
            turn = turn @ np.diag([-1, 1])
        x, y = self.between(0, side), self.between(0, side)
        if centred:
            x = side * (0.5 + np.clip(self.random.normal(0, 0.12), -0.3, 0.3))
            y = side * (0.52 + np.clip(self.random.normal(0, 0.1), -0.3, 0.3))
            if size is None:
                x, y = self.cut_off(x, y, width * scale, height * scale, bust)
        shift = np.array([x, y]) - turn @ np.array([width / 2, height / 2])
        warp = np.hstack([turn, shift[:, None]]).astype(np.float32)
        canvas = cv2.warpAffine(packed, warp, (side, side), flags=cv2.INTER_LINEAR)
        canvas[..., :3] /= np.maximum(canvas[..., 3:], 1e-3)
        return np.clip(canvas, 0, 1)

    def cut_off(self, x, y, width, height, bust):
        """Moves some subjects so that they leave the frame: busts below, others anywhere."""
        side = self.side
        if bust and self.chance(0.85) or self.chance(0.08):
            return x, side - height / 2 + self.between(0, 0.15) * height
        if self.chance(0.2):
            share = self.between(0.08, 0.45)
            edge = int(self.random.choice(4, p=[0.35, 0.35, 0.2, 0.1]))
            if edge == 0:
                x = width / 2 - share * width
            elif edge == 1:
                x = side - width / 2 + share * width
            elif edge == 2:
                y = side - height / 2 + share * height
            else:
                y = height / 2 - share * height
        return x, y

    def bystander(self, ground):
        """A sharp thing that a side of the frame cuts off: it belongs to the ground."""
        thing = self.placed(self.between(0.15, 0.9), centred=False)
        rows, columns = (np.flatnonzero(thing[..., 3].max(axis) > 0.3) for axis in (1, 0))
        if len(rows) < 4 or len(columns) < 4:
            return
        keep, edge = self.between(0.25, 0.7), int(self.random.integers(4))
        width, height = columns[-1] - columns[0], rows[-1] - rows[0]
        dx = (-int(columns[0] + keep * width), int(self.side - columns[-1] + keep * width), 0, 0)[edge]
        dy = (0, 0, -int(rows[0] + keep * height), int(self.side - rows[-1] + keep * height))[edge]
        thing = cv2.warpAffine(thing, np.float32([[1, 0, dx], [0, 1, dy]]), (self.side, self.side))
        alpha = thing[..., 3:]
        ground[:] = ground * (1 - alpha) + thing[..., :3] * alpha

    def ground(self):
        kind = self.random.random()
        if kind < 0.2:
            ground = self.floor()
        elif kind < 0.75:
            ground = self.photograph(self.side)
            if self.chance(0.25):  # two scenes that meet: wall and window, field and sky
                other, field = self.photograph(self.side), self.gradient(self.side)
                share = np.clip((field - self.between(0.3, 0.7)) * self.between(3, 200) + 0.5, 0, 1)
                ground = ground * (1 - share) + other * share
            if self.chance(0.4):
                ground = cv2.GaussianBlur(ground, (0, 0), self.between(0.4, 1) ** 3 * 10 + 0.3)
        else:
            ground = self.studio()
        ground = np.ascontiguousarray(ground, np.float32)
        if self.chance(0.3):
            self.foliage([ground])
        if self.chance(0.16):
            self.boxes(ground)
        if self.chance(0.12):
            self.cloth(ground)
        if self.chance(0.3):
            for _ in range(int(self.random.integers(1, 4))):
                self.bystander(ground)
        if self.chance(0.1):
            ground = cv2.GaussianBlur(ground, (0, 0), self.between(0.5, 2.5))
        return np.clip(ground, 0, 1)

    def scene(self):
        """A part of a photograph with a mask: its subject and, as the ground, the photograph itself."""
        for _ in range(8):
            scene = self.scenes[int(self.random.integers(len(self.scenes)))]
            height, width = scene.shape[:2]
            h, w = (int(n * (1 if self.chance(0.4) else self.between(0.6, 1))) for n in (height, width))
            y, x = int(self.random.integers(height - h + 1)), int(self.random.integers(width - w + 1))
            part = cv2.resize(scene[y : y + h, x : x + w], (self.side,) * 2, interpolation=cv2.INTER_AREA)
            if 0.04 < part[..., 3].mean() / 255 < 0.88:
                break
        return part, np.ascontiguousarray(part[..., :3])

    def layers(self):
        """The subject (RGBA bytes) and the ground (RGB bytes) of one picture, and whether they belong together."""
        if len(self.scenes) and self.chance(SCENES):
            return *self.scene(), True
        for _ in range(6):
            subject = self.close() if self.chance(0.3) else self.placed()
            if 0.04 < subject[..., 3].mean() < 0.88:
                break
        if self.chance(0.1):  # something held or attached
            other = self.placed(self.between(0.25, 0.6))
            alpha = other[..., 3:]
            subject[..., :3] = subject[..., :3] * (1 - alpha) + other[..., :3] * alpha
            subject[..., 3:] = np.maximum(subject[..., 3:], alpha)
        rows = np.flatnonzero(subject[..., 3].max(1) > 0.5)
        if self.chance(0.12) and len(rows) > 8 and rows[-1] < self.side - 4:  # grass before the feet hides them
            columns = np.flatnonzero(subject[..., 3].max(0) > 0.5)
            region = (columns[0] - 20, columns[-1] + 20, rows[-1] - 0.06 * self.side, rows[-1] + 0.08 * self.side)
            ground, mask = self.ground(), np.zeros((self.side, self.side), np.float32)
            self.foliage([ground, mask], region, int(self.random.integers(10, 60)))
            subject[..., 3] *= 1 - np.clip(mask, 0, 1)
        else:
            ground = self.ground()
        return (subject * 255).round().astype(np.uint8), (ground * 255).round().astype(np.uint8), False
