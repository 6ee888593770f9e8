"""What a person wears: clothes cut from MakeHuman's helper meshes, hair, hats and glasses."""

import numpy as np

from . import raster, scene
from .bodies import FOOT, HEAD, LOWER_ARM, LOWER_LEG, TRUNK, UPPER_ARM, UPPER_LEG

CLOTH = np.float32([
    [0.08, 0.08, 0.1], [0.15, 0.2, 0.35], [0.92, 0.92, 0.9], [0.45, 0.45, 0.47], [0.3, 0.1, 0.1], [0.55, 0.45, 0.33],
    [0.1, 0.2, 0.15], [0.35, 0.5, 0.7],
])
SKULL = np.array([0.78, 1.12, 0.98])  # half axes of the head
# By style: number of strands, length (low, high), pieces, weight, pull of the comb (low, high), curl (low, high).
STYLES = {
    "buzz": (2500, (0.05, 0.15), 2, 0.05, (0.3, 0.3), (0.15, 0.15)),
    "short": (3200, (0.2, 0.6), 4, 0.2, (0.5, 1.2), (0.08, 0.22)),
    "medium": (3200, (0.9, 2.0), 6, 0.37, (0.5, 1.2), (0.08, 0.2)),
    "long": (3600, (2.0, 4.5), 9, 0.45, (0.4, 1.0), (0.05, 0.2)),
    "curly": (3600, (0.5, 1.6), 7, 0.05, (0.2, 0.2), (0.5, 1.0)),
    "bun": (2600, (0.5, 0.9), 4, 0.02, (1.5, 1.5), (0.08, 0.08)),
}
STANDS = {"short": 0.6, "medium": 0.5, "long": 0.4, "bun": 0.2}  # how far hair stands off


def fabric(painter):
    """A square of cloth: plain, striped, chequered, a photograph's pattern or spots."""
    random, side = painter.random, 256
    colour = painter.colour()
    if random.random() < 0.5:
        colour = CLOTH[random.integers(len(CLOTH))] * random.uniform(0.7, 1.2) + random.normal(0, 0.03, 3)
    cloth = np.broadcast_to(np.float32(colour), (side, side, 3)).copy()
    kind = random.random()
    if 0.45 < kind < 0.65:
        cloth[np.arange(side) * random.integers(4, 30) // side % 2 == 0] = painter.colour()
        if random.random() < 0.35:
            cloth = cloth.swapaxes(0, 1).copy()
        if random.random() < 0.4:
            cloth = (cloth + cloth.swapaxes(0, 1)) / 2
    elif kind > 0.88:
        rows, columns = np.mgrid[0:side, 0:side]
        for _ in range(random.integers(5, 40)):
            y, x, radius = random.uniform(0, side), random.uniform(0, side), random.uniform(2, 20)
            cloth[(rows - y) ** 2 + (columns - x) ** 2 < radius**2] = painter.colour()
    elif kind >= 0.65:
        cloth = painter.photograph(side, 0.15) * 0.6 + cloth * 0.4
    return np.clip(cloth + random.normal(0, 1, (side, side, 1)) * random.uniform(0, 0.05), 0, 1).astype(np.float32)


def patterned(cloth, place):
    """The cloth's colours at places of the resting body; it repeats mirrored."""
    side = len(cloth)

    def folded(values):
        values = np.abs(values.astype(int)) % (2 * side)
        return np.where(values < side, values, 2 * side - 1 - values)

    return cloth[folded(place[:, 1] * 55), folded((place[:, 0] * 0.9 + place[:, 2] * 0.6) * 55)]


def dressed(figure, painter):
    """The body and its clothes as Parts."""
    base, random, still = figure.base, figure.random, figure.still
    region, tights = base.region, base.groups["helper-tights"]
    sleeves, legs = random.choice(4, p=[0.08, 0.34, 0.06, 0.52]), random.choice(3, p=[0.2, 0.1, 0.7])
    skirt = figure.shape.sex == "female" and random.random() < 0.35
    lower = np.isin(region, (UPPER_LEG, LOWER_LEG)) | base.waist

    corners = region[tights]
    below = lower[tights].sum(1) >= 2
    above = ~below & (np.isin(corners, (TRUNK, UPPER_ARM, LOWER_ARM)).sum(1) >= 2)
    limits = {0: (UPPER_ARM, 2), 1: (LOWER_ARM, 1), 2: (LOWER_ARM, 3)}  # none, short, to the elbow; else long
    if sleeves in limits:
        part, least = limits[sleeves]
        above &= (corners == part).sum(1) < least
    if random.random() < 0.25:
        above |= (corners == HEAD).sum(1) >= 2  # a collar
    else:
        neck = base.joint(still, base.bones["neck01"]["head"])[1] - random.uniform(0, 0.5)
        middle = still[tights].mean(1)
        above &= (middle[:, 1] < neck) | (np.abs(middle[:, 0]) > random.uniform(0.3, 0.9))
    if legs == 0:
        below &= (corners == LOWER_LEG).sum(1) < 1
    if skirt:
        below[:] = False
    above, below = whole_faces(above), whole_faces(below)

    shell = hung(figure, tights)
    normals = raster.normals(shell, tights)
    top = fabric(painter)
    bottom = fabric(painter) if random.random() < 0.85 else top
    skin, colours = figure.vertices.copy(), figure.skin.copy()
    covered = (region == TRUNK) | (region == UPPER_ARM) & (sleeves >= 1) | (region == LOWER_ARM) & (sleeves == 3)
    covered |= lower & (not skirt) & ((region != LOWER_LEG) | (legs > 0))
    depth = np.where(np.isin(region, (TRUNK, UPPER_LEG)), 0.28, 0.12)
    skin[covered] -= (figure.normals * depth[:, None])[covered]
    if random.random() < 0.85:  # shoes
        foot = region == FOOT
        skin[foot] += figure.normals[foot] * 0.07
        colours[foot] = painter.colour() * random.uniform(0.2, 1)
    gloss = random.uniform(0, 0.15)
    parts = [scene.Part(skin, figure.normals, base.groups["body"], lambda at: at(colours), wrap=0.25, gloss=gloss, sharpness=14)]
    for chosen, cloth in ((above, top), (below, bottom)):
        if chosen.any():
            parts.append(worn_part(shell, normals, tights[chosen], still, cloth))
    if skirt:
        triangles = base.groups["helper-skirt"]
        angle, fall = np.arctan2(still[:, 0], still[:, 2]), np.clip((1.5 - still[:, 1]) / 3, 0, 1)
        waves = np.sin(angle * random.integers(6, 20)) * random.uniform(0, 0.1) * fall
        cloth = figure.vertices + figure.normals * (random.uniform(0.06, 0.25) + waves[:, None])
        chosen = triangles[still[triangles][:, :, 1].mean(1) > random.uniform(-7.3, -1)]
        parts.append(worn_part(cloth, raster.normals(cloth, triangles), chosen, still, bottom))
    return parts


def worn_part(vertices, normals, triangles, still, cloth):
    return scene.Part(vertices, normals, triangles, lambda at: patterned(cloth, at(still)), wrap=0.0, gloss=0.03, sharpness=14)


def whole_faces(chosen):
    """The choice made equal for the two triangles of every face of four corners."""
    pairs = chosen[: len(chosen) // 2 * 2].reshape(-1, 2).any(1)
    return np.concatenate([np.repeat(pairs, 2), chosen[len(pairs) * 2 :]])


def hung(figure, triangles):
    """The shell of the clothes: off the skin, with folds, smoothed."""
    random, still = figure.random, figure.still
    phase, waves = random.uniform(0, 6), random.uniform(1.5, 5)
    folds = np.sin(still[:, 0] * waves + np.sin(still[:, 1] * waves * 0.8 + phase) * 1.5)
    folds = (folds + np.sin(still[:, 1] * waves * 1.3 + still[:, 2] * waves + phase)) / 2
    shell = figure.vertices + figure.normals * (random.uniform(0.06, 0.25) + random.uniform(0, 0.06) * folds[:, None])
    edges = np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    edges = np.vstack([edges, edges[:, ::-1]])
    degree = np.maximum(np.bincount(edges[:, 0], minlength=len(shell)), 1)[:, None]
    used = np.unique(triangles)
    for _ in range(random.integers(0, 7)):
        around = np.stack([np.bincount(edges[:, 0], shell[edges[:, 1], c], minlength=len(shell)) for c in range(3)], 1)
        shell[used] = (shell[used] + (around / degree)[used]) / 2
    return shell.astype(np.float32)


def strands(figure, camera, roots, directions, length, pieces, weight, curl, width):
    """Hair as ribbons that face the camera, pushed out of the skull."""
    random = figure.random
    count = len(roots)
    place, step = roots.copy(), length * random.uniform(0.6, 1.15, (count, 1)) / pieces
    direction, points = raster.unit(directions), [roots.copy()]
    for _ in range(pieces):
        direction = raster.unit(direction + [0, -weight, 0] + random.normal(0, curl, (count, 3)))
        place = place + direction * step
        within = (place - figure.skull) @ figure.turn / SKULL
        far = np.linalg.norm(within, axis=1, keepdims=True)
        outside = (within / np.maximum(far, 1e-3) * SKULL) @ figure.turn.T + figure.skull
        place = np.where(far < 1, outside, place)
        points.append(place.copy())
    points = np.stack(points, 1)
    along = np.diff(points, axis=1, append=2 * points[:, -1:] - points[:, -2:-1])
    aside = raster.unit(np.cross(along, camera.place - points.mean((0, 1))))
    aside = aside * (width * np.linspace(1, 0.25, pieces + 1))[None, :, None]
    vertices = np.concatenate([points + aside, points - aside], 1).reshape(-1, 3)
    first, second = np.arange(count)[:, None] * 2 * (pieces + 1), np.arange(pieces)[None]
    a, b = first + second, first + second + pieces + 1
    triangles = np.concatenate([np.stack([a, a + 1, b], 2).reshape(-1, 3), np.stack([a + 1, b + 1, b], 2).reshape(-1, 3)])
    outwards = raster.unit(points - figure.skull)
    normals = np.concatenate([outwards, outwards], 1).reshape(-1, 3)
    colours = figure.hair * random.uniform(0.55, 1.35, (count, 1)) + random.normal(0, 0.015, (count, 3))
    colours = np.repeat(colours.clip(0, 1), 2 * (pieces + 1), 0)
    return scene.Part(vertices, normals, triangles.astype(np.int32), lambda at: at(colours), wrap=0.4, gloss=0.1, sharpness=14)


def rooted(figure, faces, count):
    """Random places on triangles of the body, and their normals."""
    corners = figure.base.groups["body"][faces]
    a, b, c = (figure.vertices[corners[:, i]] for i in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    chosen = corners[figure.random.choice(len(corners), count, p=area / area.sum())]
    shares = figure.random.dirichlet([1, 1, 1], count)[..., None]
    return (figure.vertices[chosen] * shares).sum(1), (figure.normals[chosen] * shares).sum(1)


def haired(figure, camera, near):
    """The hair of the head and of the chin; near people have more and thinner strands."""
    random, body, parts = figure.random, figure.base.groups["body"], []
    faces = np.flatnonzero(figure.scalp[body].mean(1) > 0.5)
    if figure.style != "bald" and len(faces) > 50:
        count, length, pieces, weight, comb, curl = STYLES[figure.style]
        count = count if near else count // 2
        roots, normals = rooted(figure, faces, count)
        side = np.sign(((roots - figure.skull) @ figure.turn)[:, 0] - random.normal(0, 0.2))
        combed = np.stack([side * 0.8, np.zeros(count), -np.full(count, random.uniform(0.1, 1))], 1)
        if figure.style == "bun":
            combed = np.tile([0, 0.3, -1.0], (count, 1))
        directions = normals * STANDS.get(figure.style, 1) + combed @ figure.turn.T * random.uniform(*comb)
        width = (0.018 if near else 0.03) * random.uniform(0.8, 1.4)
        parts.append(
            strands(figure, camera, roots, directions, random.uniform(*length), pieces, weight, random.uniform(*curl), width)
        )
    if figure.style == "bun":
        place = figure.skull + figure.turn @ np.array([0, random.uniform(0.2, 1), -1.05])
        colours = figure.hair * 0.85 * random.uniform(0.8, 1.15, (28 * 14, 1))
        axes = np.array([0.42, 0.42, 0.38]) * random.uniform(0.7, 1.2)
        parts.append(scene.Part(*ellipsoid(place, axes, figure.turn), lambda at: at(colours), wrap=0.4))
    faces = np.flatnonzero(figure.chin[body].mean(1) > 0.45)
    if figure.beard and random.random() < 0.5 and len(faces) > 20:
        roots, normals = rooted(figure, faces, 700)
        parts.append(strands(figure, camera, roots, normals, random.uniform(0.1, 0.6), 3, 0.3, 0.2, 0.014))
    return parts


def ellipsoid(centre, axes, turn, lowest=-1.0, around=28, rings=14):
    """Vertices, normals and triangles of an ellipsoid above a height."""
    angle, height = np.linspace(0, 2 * np.pi, around, endpoint=False), np.linspace(np.arcsin(lowest), np.pi / 2, rings)
    ring = np.cos(height)[:, None]
    points = np.stack([ring * np.sin(angle), np.repeat(np.sin(height)[:, None], around, 1), ring * np.cos(angle)], 2)
    points = points.reshape(-1, 3)
    start = (np.arange(rings - 1)[:, None] * around + np.arange(around)).ravel()
    after = (np.arange(rings - 1)[:, None] * around + (np.arange(around) + 1) % around).ravel()
    triangles = np.concatenate([
        np.stack([start, after, start + around], 1), np.stack([after, after + around, start + around], 1),
    ])
    return (points * axes) @ turn.T + centre, points @ turn.T, triangles.astype(np.int32)


def worn(figure, painter, near):
    """Sometimes a hat, sometimes glasses."""
    random, turn, parts = figure.random, figure.turn, []
    if random.random() < 0.11:
        cloth = fabric(painter)

        def hat(centre, axes, lowest=-1.0):
            vertices, normals, triangles = ellipsoid(centre, axes, turn, lowest)
            place = (vertices - figure.skull) @ turn
            parts.append(worn_part(vertices, normals, triangles, place, cloth))

        hat(figure.skull, np.array([0.86, 1.2, 1.08]) * random.uniform(1, 1.08), random.uniform(0.2, 0.5))
        if random.random() < 0.7:
            brim = random.uniform(1.15, 1.9)
            forward = 0.0 if random.random() < 0.5 else 0.7
            hat(figure.skull + turn @ np.array([0, 0.42, forward]), np.array([0.86 * brim, 0.06, brim]))
    if random.random() < 0.14 and near:
        colour, (wide, high) = painter.colour() * random.uniform(0, 0.5), (random.uniform(0.24, 0.3), random.uniform(0.17, 0.26))
        angle, rim = np.linspace(0, 2 * np.pi, 25), 0.022
        ring = np.concatenate([
            np.stack([np.cos(angle) * (wide + d), np.sin(angle) * (high + d), 0 * angle], 1) for d in (rim, -rim)
        ])
        i = np.arange(24)
        triangles = np.int32(np.concatenate([np.stack([i, i + 1, i + 25], 1), np.stack([i + 1, i + 26, i + 25], 1)]))
        for side, group in ((1, "helper-l-eye"), (-1, "helper-r-eye")):
            centre = figure.base.middle(figure.vertices, group) + turn @ np.array([side * 0.04, -0.03, 0.3])
            normals = np.tile(turn @ np.array([0, 0, 1.0]), (50, 1))
            parts.append(scene.Part(ring @ turn.T + centre, normals, triangles, lambda at: at(normals) * 0 + colour))
    return parts
