"""Renders clothed people from MakeHuman's CC0 assets: whole figures (mh) and people cut off below (mhb).

    python -m render.people --cache data/packages --bundle data/photographs.zip --count 2800 --out data/cutouts

makes mh-train.tar and mhb-train.tar; --held makes the held-out ones, of other
seeds and with clothes patterned by the photographs for validation.
"""

import argparse
import pathlib

import numpy as np

from background import brush, layers

from . import bodies, raster, scene, shelf, wardrobe
from .bodies import HEAD

EYES = ("helper-l-eye", "helper-r-eye")
SKIN = np.float32([
    [0.96, 0.80, 0.70], [0.90, 0.72, 0.58], [0.80, 0.60, 0.45], [0.60, 0.42, 0.30], [0.40, 0.26, 0.18], [0.27, 0.17, 0.12],
])
HAIR = np.float32([
    [0.05, 0.04, 0.035], [0.12, 0.08, 0.05], [0.25, 0.16, 0.09], [0.45, 0.3, 0.16], [0.72, 0.56, 0.33], [0.5, 0.22, 0.1],
    [0.6, 0.6, 0.6], [0.85, 0.84, 0.82],
])
HAIR_ODDS = np.array([4, 3.5, 3, 2, 2, 0.8, 0.6, 0.4])
IRIS = np.float32([[0.25, 0.14, 0.07], [0.15, 0.09, 0.05], [0.3, 0.45, 0.6], [0.35, 0.45, 0.3]])
# How far up the hair grows, by the angle from the front.
HAIRLINE = [0, 0.6, 1.1, 1.5, 2.2, 3.15]


class Figure:
    """A random person: shape, pose, skin and hair, and the axes of the head."""

    def __init__(self, base, random):
        self.base, self.random = base, random
        self.shape = bodies.Shape(base, random)
        self.still = self.shape.vertices
        self.vertices, self.turn = bodies.posed(base, self.still, random)
        self.vertices = self.vertices.astype(np.float32)
        shells = [base.groups[g] for g in ("body", "helper-tights", "helper-skirt")]
        self.normals = raster.normals(self.vertices, np.vstack(shells))
        eyes = np.mean([base.middle(self.vertices, g) for g in EYES], 0)
        self.skull = eyes + self.turn @ np.array([0, 0.25, -0.85])
        self.hair = self.hair_colour()
        self.style = self.hair_style()
        self.beard = self.shape.sex == "male" and random.random() < 0.35
        self.scalp = self.scalp_mask()
        self.skin, self.chin = self.painted()

    def hair_colour(self):
        odds = HAIR_ODDS.copy()
        if self.shape.old > 0.5:
            odds = odds * [0.5, 0.5, 0.5, 0.5, 0.5, 0.3, 5, 5]
        if self.shape.ancestry[2] < 0.4:
            odds = odds * [4, 2, 0.5, 0.2, 0.1, 0.1, 1, 0.6]
        return HAIR[self.random.choice(len(HAIR), p=odds / odds.sum())] * self.random.uniform(0.8, 1.2)

    def hair_style(self):
        women, men = [0.02, 0.12, 0.28, 0.15, 0.23, 0.13, 0.07], [0.12, 0.2, 0.42, 0.1, 0.05, 0.1, 0.01]
        styles = ["bald", "buzz", "short", "medium", "long", "curly", "bun"]
        return self.random.choice(styles, p=women if self.shape.sex == "female" else men)

    def scalp_mask(self):
        """Where hair grows, 0..1 per vertex."""
        seen = raster.unit((self.vertices - self.skull) @ self.turn)
        around, up = np.abs(np.arctan2(seen[:, 0], seen[:, 2])), np.arcsin(np.clip(seen[:, 1], -1, 1))
        line = [self.random.uniform(0.55, 0.95), self.random.uniform(0.5, 0.85), 0.35, 0.15, -0.35,
                self.random.uniform(-0.6, -0.4)]
        near = np.linalg.norm(self.vertices - self.skull, axis=1) < 2.2
        return np.clip((up - np.interp(around, HAIRLINE, line)) * 9 + 0.5, 0, 1) * near * (self.base.region == HEAD)

    def painted(self):
        """The colour of every vertex of the skin, and where a beard grows."""
        random, base, still = self.random, self.base, self.still
        tone = np.clip(self.shape.ancestry @ np.array([4.2, 1.3, 0.6]) + random.normal(0, 0.7), 0, 4.99)
        skin = SKIN[int(tone)] * (1 - tone % 1) + SKIN[int(tone) + 1] * (tone % 1)
        skin = skin * random.uniform(0.9, 1.08) + random.normal(0, 0.015, 3)
        colour = np.tile(skin.astype(np.float32), (len(still), 1))

        def mix(mask, other):
            colour[:] = colour * (1 - mask[:, None]) + np.float32(other) * mask[:, None]

        head = base.region == HEAD
        lips = base.touched("mouth/mouth-upperlip-volume-incr", "mouth/mouth-lowerlip-volume-incr")
        mix(np.clip(lips * 1.3 - 0.25, 0, 1), skin * [0.85, 0.55, 0.55] if random.random() < 0.7 else [0.7, 0.1, 0.15])
        eyes = [base.middle(still, g) for g in EYES]
        across = np.abs(still[:, 0]) - abs(eyes[0][0])
        above = still[:, 1] - (eyes[0][1] + 0.26 + 0.05 * np.cos(across * 5))
        brows = np.exp(-((above / 0.055) ** 2)) * np.exp(-((across / 0.22) ** 4)) * (still[:, 2] > eyes[0][2] - 0.25) * head
        mix(brows * random.uniform(0.4, 0.95), self.hair * 0.8)
        if self.style != "bald":
            mix(self.scalp * 0.75, self.hair * 0.75)
        mouth = still[lips > 0.6].mean(0)
        chin = np.clip((mouth[1] + 0.12 - still[:, 1]) * 4, 0, 1) * np.clip((still[:, 2] - 0.35) * 2, 0, 1)
        chin = chin * head * (still[:, 1] > mouth[1] - 0.95) * (1 - np.clip(lips * 2, 0, 1))
        if self.beard:
            mix(chin * random.uniform(0.3, 0.9), self.hair * 0.7)
        return colour, chin

    def eyes(self):
        """The eyeballs, with iris and pupil."""
        still, base = self.still, self.base
        centres = [base.middle(still, g) for g in EYES]
        left = still[np.unique(base.groups[EYES[0]])]
        radius = (left[:, 0].max() - left[:, 0].min()) / 2
        iris = IRIS[self.random.integers(len(IRIS))]

        def colour(at):
            place = at(still)
            centre = np.where(place[:, :1] > 0, centres[0], centres[1])
            distance = np.hypot(*(place - centre)[:, :2].T) / radius
            front = place[:, 2] > centre[:, 2]
            seen = np.tile(np.float32([0.92, 0.9, 0.88]), (len(place), 1))
            seen[(distance < 0.5) & front] = iris
            seen[(distance < 0.24) & front] = 0.03
            return seen

        triangles = np.vstack([base.groups[g] for g in EYES])
        normals = raster.normals(self.vertices, triangles)
        return scene.Part(self.vertices, normals, triangles, colour, gloss=0.9, sharpness=40)

    def lashes(self):
        triangles = np.vstack([t for g, t in self.base.groups.items() if "lash" in g])
        normals = np.tile(self.turn @ np.array([0, 0, 1.0]), (len(self.vertices), 1))
        return scene.Part(self.vertices, normals, triangles, lambda at: at(self.skin) * 0 + self.hair * 0.4, casts=False)


def framed(figure, random, height=640):
    """A camera on the whole person, three quarters, a bust or the face, and the radius of what it sees."""
    base, vertices = figure.base, figure.vertices
    frame = random.choice(["whole", "knees", "bust", "face"], p=[0.36, 0.22, 0.27, 0.15])
    body = vertices[np.unique(base.groups["body"])]
    far = frame in ("whole", "knees")
    top = (body[:, 1].max() if far else vertices[base.region == HEAD, 1].max()) + 0.25
    low = body[:, 1].min()
    bottom, top = {
        "whole": (low - 0.3, top + 0.4), "knees": (low + (top - low) * random.uniform(0.2, 0.5), top + 0.5),
        "bust": (top - random.uniform(3.4, 6), top + 0.4), "face": (top - random.uniform(2.2, 3.4), top + 0.3),
    }[frame]
    middle = body.mean(0) if far else figure.skull
    centre = np.array([middle[0], (top + bottom) / 2, middle[2]])
    yaw = random.normal(0, 0.5) if random.random() < 0.75 else random.uniform(-3.14, 3.14)
    field = random.uniform(0.25, 0.9)
    distance = ((top - bottom) / 2 / np.tan(field / 2) + 0.5) * (1.17 if frame == "whole" else 1)
    camera = scene.Camera(
        centre, distance, field, (height * 3 // 2, height), yaw, random.normal(0, 0.12), random.normal(0, 0.04)
    )
    return camera, (top - bottom) * 0.75 + 0.5, not far


def picture(base, random, painter):
    """A person as RGBA floats and its kind, or None."""
    figure = Figure(base, random)
    camera, radius, near = framed(figure, random)
    parts = wardrobe.dressed(figure, painter) + [figure.eyes()]
    if random.random() < 0.7:
        parts.append(figure.lashes())
    parts += wardrobe.haired(figure, camera, near) + wardrobe.worn(figure, painter, near)
    found = scene.render(parts, camera, scene.Light.drawn(random, camera), radius, random)
    return found and (found[0], "mhb" if found[1] else "mh")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shelf.arguments(parser)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--held", action="store_true")
    arguments = parser.parse_args()
    random = np.random.default_rng([arguments.seed, int(arguments.held)])
    base = bodies.Base(arguments.cache / "makehuman")
    grounds = layers.photographs(arguments.bundle, uses=("validate" if arguments.held else "train",))
    painter = brush.Brush(grounds, 256, [arguments.seed, int(arguments.held)])
    made = 0
    with shelf.Shelf(arguments.out) as tars:
        while made < arguments.count:
            found = picture(base, random, painter)
            if found and shelf.serves(found[0]):
                tars.add(found[1], arguments.held, found[0])
                made += 1
        tars.report(arguments.sheet)


if __name__ == "__main__":
    main()
