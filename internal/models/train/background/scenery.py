"""What lies behind a subject: floors, walls, foliage, cloth and boxes."""

import cv2
import numpy as np

from .brush import Brush


class Scenery(Brush):
    """Draws grounds without things that could be subjects."""

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

    def cloth(self, ground):
        """A flag or curtain, striped or plain, with folds; cut off by the frame or hanging behind."""
        side = self.side
        rows, columns = np.mgrid[0:side, 0:side].astype(np.float32) / side
        angle = self.random.normal(0, 0.5) + (np.pi / 2 if self.chance(0.4) else 0)
        wave = self.between(0, 0.05) * np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * self.between(8, 40))
        across = (-columns * np.sin(angle) + rows * np.cos(angle) + wave) * self.between(3, 14)
        colours = np.stack([self.colour() for _ in range(int(self.random.integers(1, 5)))])
        picture = colours[np.floor(across).astype(int) % len(colours)]
        if self.chance(0.3):
            picture = self.photograph(side)
        folds = 1 + self.between(0, 0.35) * np.sin((columns + 0.3 * rows) * self.between(15, 70) + wave * 30)
        x, y = self.random.uniform(-0.1, 1.1, 2)
        if self.chance(0.7):  # at a side, seldom in the middle
            x = self.between(-0.15, 0.25) if self.chance(0.5) else self.between(0.75, 1.15)
        half = self.random.uniform(0.1, 0.45, 2)
        inside = (abs(columns + wave - x) < half[0]) & (abs(rows + wave - y) < half[1])
        mask = cv2.GaussianBlur(inside.astype(np.float32), (0, 0), self.between(0.5, 1.5))[..., None]
        ground[:] = ground * (1 - mask) + np.clip(picture * folds[..., None], 0, 1) * mask

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
