"""Colours, textures and drawn shapes, which subjects and grounds are made of."""

import cv2
import numpy as np


class Brush:
    """Draws at random; the same seed draws the same. grounds are photographs, as RGB bytes."""

    def __init__(self, grounds, side, seed):
        self.grounds, self.side = grounds, side
        self.random = np.random.default_rng(seed)

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
