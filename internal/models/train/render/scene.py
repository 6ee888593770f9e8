"""A camera, lights and shading for cut-outs of triangle meshes."""

import dataclasses
import typing

import cv2
import numpy as np

from .raster import Buffer, unit

SHADOW = 360  # side of the shadow map in pixels


@dataclasses.dataclass
class Part:
    """A mesh of one material.

    colour gets a function that interpolates one row per vertex at the visible
    points, and returns their RGB. wrap is how far light reaches around the
    edge of shadow, gloss and sharpness describe the highlight. holes is six
    texture coordinates per triangle and a texture of opacity, or None.
    """

    vertices: np.ndarray
    normals: np.ndarray
    triangles: np.ndarray
    colour: typing.Callable
    wrap: float = 0.1
    gloss: float = 0.05
    sharpness: float = 30
    holes: tuple | None = None
    casts: bool = True


class Camera:
    """Looks at centre from a distance; field is the angle of view from top to bottom."""

    def __init__(self, centre, distance, field, size, yaw, pitch, roll=0.0):
        self.centre, self.distance, (self.width, self.height) = np.asarray(centre), distance, size
        self.focus = self.height / 2 / np.tan(field / 2)
        self.turn = rotation(2, roll) @ rotation(0, pitch) @ rotation(1, yaw)
        self.place = self.centre + self.turn.T @ np.array([0, 0, distance])

    def project(self, points):
        """Pixels and depth, and one over the depth (-1 behind the camera)."""
        seen = (points - self.centre) @ self.turn.T
        depth = self.distance - seen[:, 2]
        near = 0.03 * self.distance
        safe = np.maximum(depth, near)
        x, y = self.width / 2 + self.focus * seen[:, 0] / safe, self.height / 2 - self.focus * seen[:, 1] / safe
        return np.stack([x, y, depth], 1), np.where(depth > near, 1 / safe, -1)


def rotation(axis, angle):
    vector = np.zeros(3)
    vector[axis] = angle
    return cv2.Rodrigues(vector)[0]


@dataclasses.dataclass
class Light:
    """A key light, light from everywhere and from above, and one from behind."""

    direction: np.ndarray
    key: np.ndarray
    ambient: np.ndarray
    sky: float
    rim: float
    rim_direction: np.ndarray
    shadows: bool

    @classmethod
    def drawn(cls, random, camera):
        turn, (height, angle) = camera.turn.T, (random.uniform(-0.1, 1.2), random.uniform(-1.6, 1.6))
        direction = [np.sin(angle) * np.cos(height), np.sin(height), np.cos(angle) * np.cos(height)]
        return cls(
            turn @ np.array(direction), random.uniform(0.5, 1.1) * (1 + random.normal(0, 0.06, 3)),
            random.uniform(0.25, 0.6) * (1 + random.normal(0, 0.05, 3)), random.uniform(0, 0.25),
            random.uniform(0, 0.5) * (random.random() < 0.3), turn @ np.array([random.choice([-0.8, 0.8]), 0.3, -0.6]),
            random.random() < 0.75,
        )


class Shadows:
    """What the key light sees of a ball around the scene."""

    def __init__(self, parts, light, centre, radius):
        self.centre, self.radius = centre, radius
        across = unit(np.cross([0, 1, 0.01], light.direction))
        self.axes = np.stack([across, np.cross(light.direction, across), light.direction])
        self.buffer = Buffer(SHADOW, SHADOW)
        for part in parts:
            if part.casts:
                self.buffer.draw(self.seen(part.vertices), np.ones(len(part.vertices)), part.triangles)

    def seen(self, points):
        along = (points - self.centre) @ self.axes.T / self.radius
        return np.stack([(along[:, 0] + 1) * SHADOW / 2, (1 - along[:, 1]) * SHADOW / 2, -along[:, 2]], 1)

    def lit(self, points, normals):
        """How much of the key light reaches the points."""
        seen = self.seen(points + normals * self.radius * 0.01)
        x, y = (np.clip(seen[:, i].astype(int), 0, SHADOW - 1) for i in range(2))
        return np.where(self.buffer.depth[y, x] < seen[:, 2] - 0.02, 0.28, 1.0)


def render(parts, camera, light, radius, random, least=2500):
    """The parts as a cropped RGBA picture of floats at half the camera's size, and whether the frame cuts them off below.

    None if too few pixels are covered.
    """
    buffer = Buffer(camera.width, camera.height)
    ranges = []
    for part in parts:
        points, inverse = camera.project(part.vertices)
        ranges.append(buffer.draw(points, inverse, part.triangles, *(part.holes or ())))
    covered = buffer.owner >= 0
    if covered.sum() < least:
        return None
    shadows = Shadows(parts, light, camera.centre, radius) if light.shadows else None
    image = np.zeros((*covered.shape, 3), np.float32)
    for part, (start, end) in zip(parts, ranges):
        mine = (buffer.owner >= start) & (buffer.owner < end)
        if mine.any():
            image[mine] = shade(part, part.triangles[buffer.owner[mine] - start], buffer.first[mine], buffer.second[mine],
                                camera, light, shadows)
    bright = image > 0.8
    image[bright] = 0.8 + 0.2 * (1 - np.exp(-(image[bright] - 0.8) / 0.25))
    image *= 1 + random.uniform(0, 0.07) * grain(covered.shape, random)[..., None]
    return cropped(image.clip(0, 1), covered.astype(np.float32)), bool(covered[-2].any())


def shade(part, corners, first, second, camera, light, shadows):
    weights = np.stack([first, second, 1 - first - second], 1)

    def at(rows):
        return np.einsum("nk,nkc->nc", weights, rows[corners])

    points, normals = at(part.vertices), unit(at(part.normals))
    view = unit(camera.place - points)
    normals = normals * np.where((normals * view).sum(1) < 0, -1, 1)[:, None]
    key = np.clip((normals @ light.direction + part.wrap) / (1 + part.wrap), 0, 1)
    if shadows:
        key = key * shadows.lit(points, normals)
    lit = light.ambient + light.sky * (normals[:, 1:2] * 0.5 + 0.5) + light.key * key[:, None]
    lit = lit + light.rim * np.clip(normals @ light.rim_direction, 0, 1)[:, None] ** 2
    highlight = np.clip((normals * unit(view + light.direction)).sum(1), 0, 1) ** part.sharpness
    return part.colour(at) * lit + part.gloss * (highlight * key)[:, None]


def grain(shape, random):
    """A fine texture over everything."""
    height, width = shape
    coarse = random.standard_normal((height // 4, width // 4)).astype(np.float32)
    fine = random.standard_normal((height // 2, width // 2)).astype(np.float32)
    return cv2.resize(coarse, (width, height)) * 0.5 + cv2.resize(fine, (width, height)) * 0.4


def cropped(image, covered):
    rows, columns = (np.flatnonzero(covered.max(axis) > 0) for axis in (1, 0))
    frame = np.s_[rows[0] // 2 * 2 : rows[-1] + 2, columns[0] // 2 * 2 : columns[-1] + 2]
    picture = np.dstack([image * covered[..., None], covered])[frame]
    picture = cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    picture[..., :3] /= np.maximum(picture[..., 3:], 1e-3)
    return picture.clip(0, 1)
