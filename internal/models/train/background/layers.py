"""Draws the two layers of a training picture: a subject with alpha, and what lies behind it.

Subjects are rendered cut-outs (people, animals, objects) and shapes drawn
here; grounds are photographs, studio walls, floors and textures, with sharp
clutter and cut-off bystanders in front, as photographs have them. What the
device does better in batches (light, shadow, blur, noise, JPEG) is in
compose.py.
"""

import io
import pathlib
import tarfile

import cv2
import numpy as np
from PIL import Image

import bundle

cv2.setNumThreads(1)

# How often a subject comes from each source; those that are absent are left out.
MIX = {"mh": 0.16, "mhb": 0.20, "zad": 0.17, "obj": 0.15, "rl": 0.08, "blob": 0.12, "fringe": 0.07, "glass": 0.05}
PEOPLE = ("mh", "mhb", "rl")
DRAWN = ("blob", "fringe", "glass")
COPYLEFT = ("zad",)


def cutouts(folder, copyleft=True):
    """The training cut-outs by kind: RGBA bytes."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*-train.tar")):
        kind = path.name.split("-")[0]
        if not copyleft and kind in COPYLEFT:
            continue
        with tarfile.open(path) as tar:
            found[kind] = [
                np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGBA"))
                for member in sorted(tar.getmembers(), key=lambda m: m.name)
            ]
    return found


def photographs(path, copyleft=True, side=640):
    """The grounds: RGB bytes, at most `side` pixels a side."""
    found = []
    for _, image in bundle.photographs(path, ("train",), copyleft):
        image.thumbnail((side, side), Image.BOX)
        found.append(np.asarray(image))
    return found


class Painter:
    """Draws layers; the same seed gives the same layers."""

    def __init__(self, subjects, grounds, side, seed):
        self.subjects, self.grounds, self.side = subjects, grounds, side
        self.random = np.random.default_rng(seed)
        self.kinds = [k for k in MIX if k in subjects or k in DRAWN]
        odds = np.array([MIX[k] for k in self.kinds])
        self.odds = odds / odds.sum()

    def chance(self, p):
        return self.random.random() < p

    def between(self, low, high):
        return self.random.uniform(low, high)

    # Colours and textures.

    def photograph(self, side, least=0.25):
        """A crop of a ground photograph, as a square of floats."""
        image = self.grounds[int(self.random.integers(len(self.grounds)))]
        extent = int(min(image.shape[:2]) * self.between(least, 1.0))
        y, x = (int(self.random.integers(0, n - extent + 1)) for n in image.shape[:2])
        crop = image[y : y + extent, x : x + extent]
        crop = cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA if extent > side else cv2.INTER_LINEAR)
        return (crop[:, ::-1] if self.chance(0.5) else crop).astype(np.float32) / 255

    def colour(self):
        if self.chance(0.35):
            return np.clip(self.between(0, 1) + self.random.uniform(-0.06, 0.06, 3), 0, 1).astype(np.float32)
        hsv = np.uint8([[[self.random.integers(180), self.random.integers(20, 255), self.random.integers(30, 256)]]])
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0].astype(np.float32) / 255

    def gradient(self, side):
        """0..1 across the square, straight or round."""
        axis = np.linspace(-1, 1, side, dtype=np.float32)
        if self.chance(0.6):
            angle = self.between(0, 6.283)
            field = (axis[None] * np.cos(angle) + axis[:, None] * np.sin(angle)) / 2 + 0.5
        else:
            field = np.hypot(axis[None] - self.between(-0.6, 0.6), axis[:, None] - self.between(-0.6, 0.6)) / 1.5
        return np.clip(field, 0, 1).astype(np.float32)[..., None]

    def clouds(self, side, cells):
        noise = self.random.random((cells, cells)).astype(np.float32)
        return cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC)[..., None]

    def material(self, side):
        """A texture for drawn subjects."""
        kind = self.random.random()
        if kind < 0.55:
            texture = self.photograph(side, 0.12)
            if self.chance(0.5):
                texture = (texture + self.colour()) / 2
        elif kind < 0.8:
            field = self.gradient(side)
            texture = self.colour() * (1 - field) + self.colour() * field
        else:
            texture = self.colour() + (self.clouds(side, int(self.random.integers(4, 40))) - 0.5) * self.between(0, 0.4)
        return np.clip(texture, 0, 1).astype(np.float32)

    def shaded(self, colour, mask):
        """Light on a shape that bulges towards the viewer."""
        distance = cv2.distanceTransform((mask > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
        radius = max(distance.max() * self.between(0.4, 1), 2.0)
        height = np.sqrt(np.clip(1 - (1 - np.minimum(distance, radius) / radius) ** 2, 0, 1)) * radius
        height = cv2.GaussianBlur(height.astype(np.float32), (0, 0), self.between(1, 3))
        dx = cv2.Sobel(height, cv2.CV_32F, 1, 0, scale=0.125)
        dy = cv2.Sobel(height, cv2.CV_32F, 0, 1, scale=0.125)
        angle, elevation = self.between(3.3, 6.1), self.between(0.3, 1.1)
        light = (
            -dx * np.cos(angle) * np.cos(elevation) - dy * np.sin(angle) * np.cos(elevation) + np.sin(elevation)
        ) / np.sqrt(dx * dx + dy * dy + 1)
        light = np.maximum(light, 0)
        ambient = self.between(0.25, 0.6)
        colour = colour * (ambient + (1.15 - ambient) * light)[..., None]
        if self.chance(0.45):
            colour = colour + (light ** self.between(8, 40))[..., None] * self.between(0.2, 0.9)
        return np.clip(colour, 0, 1)

    # Drawn subjects.

    def outline(self, side):
        """The mask of a random closed curve or polygon."""
        corners = int(self.random.integers(5, 14))
        angles = np.arange(corners) / corners * 6.283 if self.chance(0.5) else np.sort(self.random.random(corners)) * 6.283
        low = self.between(0.25, 0.9)
        radii = np.minimum(side * 0.45 * (low + (1 - low) * self.random.random(corners)), side * 0.48)
        points = np.stack([
            side / 2 + radii * np.cos(angles) * self.between(0.5, 1),
            side / 2 + radii * np.sin(angles) * self.between(0.5, 1),
        ], 1)
        if self.chance(0.75):  # a Catmull-Rom spline through them
            at = np.linspace(0, corners, 120, endpoint=False)
            i, t = at.astype(int) % corners, (at - at.astype(int))[:, None]
            p = [np.roll(points, -shift, 0)[i] for shift in (1 - 2, 0, 1, 2)]
            points = 0.5 * (
                2 * p[1] + (p[2] - p[0]) * t + (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]) * t**2
                + (3 * p[1] - p[0] - 3 * p[2] + p[3]) * t**3
            )
        mask = np.zeros((side, side), np.uint8)
        cv2.fillPoly(mask, [np.int32(points * 16)], 255, cv2.LINE_AA, 4)
        return mask.astype(np.float32) / 255

    def blob(self, side):
        """A thing of several parts and materials, some with a hole."""
        mask, colour = self.outline(side), self.material(side)
        for _ in range(int(self.random.integers(0, 4))):
            shift = tuple(int(v) for v in self.random.integers(-side // 5, side // 5 + 1, 2))
            part = np.roll(self.outline(side), shift, (0, 1))
            colour = colour * (1 - part[..., None]) + self.material(side) * part[..., None]
            if self.chance(0.4):
                mask = np.maximum(mask, part)
        if self.chance(0.12):
            shrink = np.float32([[0.4, 0, side * 0.3], [0, 0.4, side * 0.3]])
            mask = mask * (1 - cv2.warpAffine(self.outline(side), shrink, (side, side)))
        if self.chance(0.8):
            colour = self.shaded(colour, mask)
        return np.dstack([colour, mask]).astype(np.float32)

    def fringe(self, side):
        """A blob with hair or fur around it: hundreds of thin, curved strands."""
        thing = self.blob(side)
        inside = (thing[..., 3] > 0.5).astype(np.uint8)
        contours = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]
        if not contours:
            return thing
        contour = max(contours, key=len)[:, 0]
        big = np.zeros((side * 2, side * 2, 4), np.float32)
        length, base = self.between(0.03, 0.2) * side, self.colour()
        droop = self.random.normal(0, 0.6)
        for point in contour[self.random.integers(0, len(contour), int(self.random.integers(200, 900)))]:
            away = point - side / 2
            angle = np.arctan2(away[1], away[0]) + self.random.normal(0, 0.5)
            steps = np.linspace(0, 1, 6)
            reach = length * self.between(0.3, 1.2)
            turn = angle + droop * steps + self.random.normal(0, 0.2)
            path = np.stack([point[0] + reach * steps * np.cos(turn), point[1] + reach * steps * np.sin(turn)], 1)
            shade = tuple(float(v) for v in np.clip(base * self.between(0.6, 1.3), 0, 1))
            cv2.polylines(big, [np.int32(path * 2)], False, (*shade, 1.0), 1, cv2.LINE_AA)
        strands = cv2.resize(big, (side, side), interpolation=cv2.INTER_AREA)
        alpha = strands[..., 3:]
        colour = strands[..., :3] / np.maximum(alpha, 1e-3)
        total = alpha + thing[..., 3:] * (1 - alpha)
        mixed = (colour * alpha + thing[..., :3] * thing[..., 3:] * (1 - alpha)) / np.maximum(total, 1e-3)
        return np.dstack([mixed, total]).clip(0, 1).astype(np.float32)

    def glass(self, side):
        """A thing of which a part lets the ground shine through."""
        thing = self.blob(side)
        part = cv2.GaussianBlur(self.outline(side), (0, 0), self.between(0.5, 4))
        thing[..., 3] *= 1 - part * self.between(0.2, 0.75)
        return thing

    # Placing.

    def subject(self):
        """A subject as RGBA floats, and its kind."""
        kind = self.kinds[int(self.random.choice(len(self.kinds), p=self.odds))]
        if kind in DRAWN:
            return getattr(self, kind)(self.side), kind
        chosen = self.subjects[kind]
        return chosen[int(self.random.integers(len(chosen)))].astype(np.float32) / 255, kind

    def placed(self, size=None, centred=True):
        """A subject on an empty canvas; size is a share of the side."""
        side = self.side
        thing, kind = self.subject()
        rows, columns = (np.flatnonzero(thing[..., 3].max(axis) > 0.1) for axis in (1, 0))
        if len(rows) < 4 or len(columns) < 4:
            return self.placed(size, centred)
        thing = thing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        height, width = thing.shape[:2]
        bust = kind == "mhb"
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

    # Grounds.

    def leaf(self, canvases, x, y, length, width, angle, colour, bend):
        dx, dy = np.cos(angle), np.sin(angle)
        along = np.linspace(0, 1, 6)
        cx = x + dx * length * along - dy * bend * length * along**2
        cy = y + dy * length * along + dx * bend * length * along**2
        half = width * np.sin(np.pi * (along * 0.9 + 0.08))
        points = np.concatenate([
            np.stack([cx - dy * half, cy + dx * half], 1), np.stack([cx + dy * half, cy - dx * half], 1)[::-1],
        ])
        for canvas, value in zip(canvases, (tuple(float(v) for v in colour), 1.0)):
            cv2.fillPoly(canvas, [np.int32(points * 8)], value, cv2.LINE_AA, 3)

    def foliage(self, canvases, region=None, count=None):
        """Sharp grass, leaves or branches, drawn into an image and, if given, its mask."""
        unit = self.side / 256
        x0, x1, y0, y1 = region or (0, self.side, 0, self.side)
        colours = self.photograph(32).reshape(-1, 3)[self.random.integers(0, 1024, 12)]
        if self.chance(0.45):
            greens = np.float32([[0.25, 0.4, 0.12], [0.4, 0.5, 0.2], [0.55, 0.6, 0.3], [0.35, 0.27, 0.17]])
            colours = 0.4 * colours + 0.6 * greens[self.random.integers(0, 4, 12)] * self.between(0.6, 1.3)
        kind, count = int(self.random.integers(3)), count or int(self.random.integers(15, 110))
        centre, spread = (self.between(x0, x1), self.between(y0, y1)), self.between(0.15, 0.6) * self.side
        for _ in range(int(count * 1.5) if kind == 0 else count if kind == 1 else max(2, count // 14)):
            colour = np.clip(colours[int(self.random.integers(12))] * self.between(0.6, 1.25), 0, 1)
            bend = self.random.normal(0, 0.25)
            if kind == 0:
                angle = -np.pi / 2 + self.random.normal(0, 0.35)
                x, y, length, width = self.between(x0, x1), self.between(y0, y1) + 4, self.between(8, 45), self.between(0.5, 2)
            elif kind == 1:
                angle, width = self.between(0, 6.28), self.between(1, 8)
                x = float(np.clip(self.random.normal(centre[0], spread), x0 - 9, x1 + 9))
                y = float(np.clip(self.random.normal(centre[1], spread), y0 - 9, y1 + 9))
                length = width * self.between(2, 5)
            else:
                angle, length, width = self.between(0, 6.28), self.between(40, 300), self.between(0.6, 5)
                x, y = self.between(x0 - 20, x1 + 20), self.between(y0, y1)
            self.leaf(canvases, x, y, length * unit, width * unit, angle, colour, bend)

    def boxes(self, ground):
        """Sharp rectangles: frames, windows, furniture, books."""
        side = self.side
        for _ in range(int(self.random.integers(1, 9))):
            w, h = self.between(0.03, 0.5) * side, self.between(0.03, 0.6) * side
            x, y, t = self.between(-0.1, 1) * side, self.between(-0.1, 1) * side, self.random.normal(0, 0.06)
            turn = np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]])
            quad = np.int32((np.array([[0, 0], [w, 0], [w, h], [0, h]]) @ turn + [x, y]) * 8)
            if self.chance(0.35):
                mask = np.zeros((side, side), np.float32)
                cv2.fillPoly(mask, [quad], 1.0, cv2.LINE_AA, 3)
                ground[:] = ground * (1 - mask[..., None]) + self.photograph(side) * mask[..., None]
            else:
                cv2.fillPoly(ground, [quad], tuple(float(v) for v in self.colour()), cv2.LINE_AA, 3)

    def floor(self):
        """A textured floor in perspective before a wall or sky, in focus near some row."""
        side = self.side
        texture = self.photograph(side, 0.2)
        texture = np.vstack([np.hstack([texture, texture[:, ::-1]]), np.hstack([texture, texture[:, ::-1]])[::-1]])
        horizon, flare = self.between(0.05, 0.7) * side, self.between(0.1, 1.2) * side
        corners = np.float32([[0, 0], [2 * side, 0], [2 * side, 2 * side], [0, 2 * side]])
        seen = np.float32([[-flare * 0.3, horizon], [side + flare * 0.3, horizon], [side + flare * 2, side], [-flare * 2, side]])
        ground = self.photograph(side) if self.chance(0.7) else self.studio()
        if self.chance(0.6):
            ground = cv2.GaussianBlur(ground, (0, 0), self.between(1, 8))
        warped = cv2.warpPerspective(texture, cv2.getPerspectiveTransform(corners, seen), (side, side))
        top = int(horizon) + 1
        ground[top:] = warped[top:]
        if self.chance(0.5):
            self.foliage([ground], (0, side, top, side))
        if self.chance(0.6):
            blurred = cv2.GaussianBlur(ground, (0, 0), self.between(1.5, 6))
            away = np.abs(np.arange(side) - self.between(0.6, 1.0) * side) / (side * self.between(0.1, 0.5))
            away = np.clip(away, 0, 1)[:, None, None].astype(np.float32)
            ground = ground * (1 - away) + blurred * away
        return ground

    def studio(self):
        side, first = self.side, self.colour()
        second = np.clip(first + self.between(-0.3, 0.3), 0, 1) if self.chance(0.8) else self.colour()
        if self.chance(0.35):
            first = np.full(3, self.between(0.85, 1), np.float32)
            second = first - self.between(0, 0.12)
        field = self.gradient(side)
        ground = first * (1 - field) + second * field
        if self.chance(0.3):
            ground = ground + (self.clouds(side, int(self.random.integers(3, 20))) - 0.5) * self.between(0.02, 0.2)
        return np.ascontiguousarray(ground, np.float32)

    def bystander(self, ground):
        """A sharp thing that a side of the frame cuts off: it belongs to the ground."""
        thing = self.placed(self.between(0.15, 0.55), centred=False)
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
            if self.chance(0.4):
                ground = cv2.GaussianBlur(ground, (0, 0), self.between(0.4, 1) ** 3 * 10 + 0.3)
        else:
            ground = self.studio()
        ground = np.ascontiguousarray(ground, np.float32)
        if self.chance(0.3):
            self.foliage([ground])
        if self.chance(0.16):
            self.boxes(ground)
        if self.chance(0.25):
            for _ in range(int(self.random.integers(1, 4))):
                self.bystander(ground)
        if self.chance(0.1):
            ground = cv2.GaussianBlur(ground, (0, 0), self.between(0.5, 2.5))
        return np.clip(ground, 0, 1)

    def layers(self):
        """The subject (RGBA bytes) and the ground (RGB bytes) of one picture."""
        for _ in range(6):
            subject = self.placed()
            if 0.04 < subject[..., 3].mean() < 0.85:
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
        return (subject * 255).round().astype(np.uint8), (ground * 255).round().astype(np.uint8)
