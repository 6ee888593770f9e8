"""MakeHuman's body: base mesh, targets (changes of its shape) and skeleton, all of its CC0 assets."""

import functools
import json

import numpy as np

from .raster import unit
from .scene import rotation

# Regions of the body, by the bone that moves a vertex most.
TRUNK, UPPER_ARM, LOWER_ARM, HAND, UPPER_LEG, LOWER_LEG, FOOT, HEAD = range(8)
REGIONS = {
    ("upperarm", "shoulder"): UPPER_ARM, ("lowerarm",): LOWER_ARM, ("wrist", "finger", "metacarpal"): HAND,
    ("upperleg", "pelvis", "root"): UPPER_LEG, ("lowerleg",): LOWER_LEG, ("foot", "toe"): FOOT,
    ("spine", "breast", "clavicle"): TRUNK,
}
DETAILS = ("nose", "chin", "cheek", "forehead", "head", "ears", "neck", "stomach", "hip", "torso")


class Base:
    """The assets: vertices, triangles by group, weights of the bones."""

    def __init__(self, folder):
        self.folder = folder / "makehuman" / "data"
        self.vertices, self.groups = read_mesh(self.folder / "3dobjs" / "base.obj")
        rig = json.loads((self.folder / "rigs" / "default.mhskel").read_text())
        self.bones, self.joints = rig["bones"], rig["joints"]
        self.order = ordered(self.bones)
        weights = json.loads((self.folder / "rigs" / "default_weights.mhw").read_text())["weights"]
        self.weights = self.spread(weights)
        strongest = np.array(self.order)[self.weights.argmax(1)]
        self.region = np.array([region(bone) for bone in strongest])
        self.waist = np.isin(strongest, ["spine05", "root"])
        targets = self.folder / "targets"
        self.names = sorted(str(p.relative_to(targets))[:-7] for p in targets.rglob("*.target"))

    def spread(self, weights):
        """Weights of all vertices; those without (helpers) take them from the nearest of the body."""
        table = np.zeros((len(self.vertices), len(self.order)), np.float32)
        for bone, pairs in weights.items():
            if bone in self.bones and pairs:
                rows, values = np.array(pairs).T
                table[rows.astype(int), self.order.index(bone)] = values
        known = table.sum(1) > 1e-3
        body = np.unique(self.groups["body"])
        body = body[known[body]][::3]
        missing = np.flatnonzero(~known)
        for start in range(0, len(missing), 500):
            some = missing[start : start + 500]
            distance = ((self.vertices[some][:, None] - self.vertices[body][None]) ** 2).sum(2)
            table[some] = table[body[distance.argmin(1)]]
        return table / table.sum(1, keepdims=True)

    @functools.cache
    def target(self, name):
        """The vertices that a target moves, and how far; None if there is no such target."""
        path = self.folder / "targets" / f"{name}.target"
        if not path.exists():
            return None
        rows = [line.split()[:4] for line in path.read_text().split("\n") if line.strip() and line[0] != "#"]
        rows = np.array(rows, float).reshape(-1, 4)
        return rows[:, 0].astype(int), rows[:, 1:].astype(np.float32)

    def touched(self, *names):
        """How much the targets move each vertex, 0..1."""
        mask = np.zeros(len(self.vertices), np.float32)
        for name in names:
            rows, moves = self.target(name)
            length = np.linalg.norm(moves, axis=1)
            mask[rows] = np.maximum(mask[rows], length / length.max())
        return mask

    def joint(self, vertices, name):
        return vertices[self.joints[name]].mean(0)

    def middle(self, vertices, group):
        return vertices[np.unique(self.groups[group])].mean(0)


def read_mesh(path):
    """Vertices and the triangles of each group of an OBJ file."""
    vertices, groups, name = [], {}, None
    for line in path.read_text().split("\n"):
        word, _, rest = line.partition(" ")
        if word == "v":
            vertices.append(rest.split()[:3])
        elif word == "g":
            name = rest.strip()
        elif word == "f":
            corners = [int(c.split("/")[0]) - 1 for c in rest.split()]
            groups.setdefault(name, []).extend((corners[0], corners[i], corners[i + 1]) for i in range(1, len(corners) - 1))
    return np.float32(vertices), {k: np.int32(v) for k, v in groups.items()}


def ordered(bones):
    """The bones, parents first."""
    order = []
    while len(order) < len(bones):
        order += [b for b, bone in bones.items() if b not in order and (not bone["parent"] or bone["parent"] in order)]
    return order


def region(bone):
    return next((r for starts, r in REGIONS.items() if bone.startswith(starts)), HEAD)


class Shape:
    """A random body: sex, age, ancestry, build and face."""

    def __init__(self, base, random):
        self.vertices = base.vertices.copy()
        self.sex = random.choice(["male", "female"])
        ages = ("child", "young", "old")
        first = random.choice(3, p=[0.14, 0.58, 0.28])
        second = min(2, first + int(random.random() < 0.5))
        share = random.random()
        self.old = (first == 2) * (1 - share) + (second == 2) * share
        self.ancestry = random.dirichlet([0.5, 0.5, 0.5])  # African, Asian, European

        def add(name, amount):
            target = base.target(name)
            if target:
                self.vertices[target[0]] += np.float32(amount) * target[1]

        for age, amount in ((ages[first], 1 - share), (ages[second], share)):
            for name, part in zip(("african", "asian", "caucasian"), self.ancestry):
                add(f"macrodetails/{name}-{self.sex}-{age}", amount * part)
            muscle = random.choice(["minmuscle", "averagemuscle", "maxmuscle"], p=[0.25, 0.5, 0.25])
            weight = random.choice(["minweight", "averageweight", "maxweight"], p=[0.25, 0.45, 0.3])
            add(f"macrodetails/universal-{self.sex}-{age}-{muscle}-{weight}", amount)
            if random.random() < 0.5:
                height = "maxheight" if random.random() < 0.6 else "minheight"
                add(f"macrodetails/height/{self.sex}-{age}-{muscle}-{weight}-{height}", amount * random.uniform(0, 0.8))
        details = [n for n in base.names if n.split("/")[0] in DETAILS]
        for name in random.choice(details, 14, replace=False):
            add(name, random.uniform(0, 0.55))
        expressions = [n for n in base.names if n.startswith("expression/units/caucasian")]
        for name in random.choice(expressions, random.integers(0, 4), replace=False):
            add(name, random.uniform(0.2, 0.8))
        if random.random() < 0.45:  # a smile
            add("expression/units/caucasian/mouth-corner-puller", random.uniform(0.3, 1))
            add("expression/units/caucasian/mouth-parling", random.uniform(0, 0.8))


# Directions of the upper and the lower part of limbs on the left side, as
# ranges (low, high) of x (outwards), y (up) and z (forwards).
ARMS = (
    (0.36, ((0.22, 0.22), (-1, -1), (-0.25, 0.25)), ((0.1, 0.1), (-1, -1), (0, 0.6))),  # hanging
    (0.13, ((0.75, 0.75), (-0.75, -0.75), (-0.25, -0.25)), ((-0.6, -0.6), (-0.6, -0.6), (0.35, 0.35))),  # on the hip
    (0.10, ((0.2, 0.2), (-1, -1), (0.15, 0.15)), ((-1, -1), (-0.1, 0.3), (0.55, 0.55))),  # crossed
    (0.09, ((0.3, 1), (0.2, 1), (0.1, 0.1)), ((-0.5, 0.4), (1, 1), (0.1, 0.1))),  # raised
    (0.10, ((0.1, 0.1), (-0.6, 0.2), (1, 1)), ((-0.2, -0.2), (-0.2, 0.5), (1, 1))),  # forwards
    (0.10, ((0.35, 0.35), (-0.9, -0.9), (0.3, 0.3)), ((-0.35, -0.35), (0.85, 0.85), (0.6, 0.6))),  # hand at the face
    (0.12, ((-0.9, 2.1), (-1.8, 1.2), (-1.2, 1.8)), ((-1.5, 1.5), (-1.5, 1.5), (-0.8, 2.2))),  # anything
)
LEGS = (
    (0.50, ((0, 0.25), (-1, -1), (-0.1, 0.1)), ((0.02, 0.02), (-1, -1), (-0.03, -0.03))),  # standing
    (0.22, ((0.05, 0.05), (-1, -1), (-0.5, 0.5)), ((0.03, 0.03), (-1, -1), (-0.6, 0))),  # walking
    (0.13, ((-0.06, 0.4), (-0.12, -0.12), (1, 1)), ((-0.2, 0.2), (-1, -1), (-0.3, 0.3))),  # sitting
    (0.08, ((0.3, 0.3), (-0.5, -0.5), (0.9, 0.9)), ((0.1, 0.1), (-0.8, -0.8), (-0.7, -0.7))),  # crouching
    (0.07, ((-0.6, 1), (-1.5, 0), (-0.5, 1.1)), ((-0.5, 0.5), (-1.6, -0.4), (-0.9, 0.3))),  # anything
)


def limbs(random):
    """Wanted directions of the limbs: {(bone, next bone): direction}."""
    wanted = {}
    legs = random.choice(len(LEGS), p=[p[0] for p in LEGS])
    for side, outwards in (("L", 1), ("R", -1)):
        arms = random.choice(len(ARMS), p=[p[0] for p in ARMS])
        for pose, bones in (
            (ARMS[arms], ("upperarm01", "lowerarm01", "wrist")), (LEGS[legs], ("upperleg01", "lowerleg01", "foot")),
        ):
            for ranges, bone, after in zip(pose[1:], bones, bones[1:]):
                direction = np.array([random.uniform(*r) for r in ranges])
                if pose in ARMS:
                    direction = direction + random.normal(0, 0.1, 3)
                wanted[f"{bone}.{side}", f"{after}.{side}"] = direction * [outwards, 1, 1]
    return wanted


def between(start, end):
    """The smallest rotation that turns one direction into another."""
    start, end = unit(start), unit(end)
    axis, cosine = np.cross(start, end), start @ end
    if cosine < -0.999:
        return np.diag([1.0, -1, -1])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cosine)


def bent(x, y, z):
    return rotation(1, y) @ rotation(0, x) @ rotation(2, z)


def posed(base, vertices, random):
    """The vertices in a random pose, and how the head is turned."""
    heads = {b: base.joint(vertices, bone["head"]) for b, bone in base.bones.items()}
    wanted = {bone: (direction, heads[after] - heads[bone]) for (bone, after), direction in limbs(random).items()}
    trunk = bent(random.normal(0, 0.08), random.normal(0, 0.08), random.normal(0, 0.05))
    neck = bent(random.normal(0, 0.14) / 3, random.normal(0, 0.3) / 3, random.normal(0, 0.1) / 3)
    curl = random.uniform(0, 0.5)
    turns, places = {}, {}
    for bone in base.order:
        parent = base.bones[bone]["parent"]
        if not parent:
            turns[bone], places[bone] = np.eye(3), heads[bone]
            continue
        turn = turns[parent]
        places[bone] = turn @ (heads[bone] - heads[parent]) + places[parent]
        if bone in wanted:
            direction, rest = wanted[bone]
            turn = between(turn @ rest, direction) @ turn
        elif bone.startswith("spine0"):
            turn = turn @ trunk
        elif bone in ("neck01", "neck02", "head"):
            turn = turn @ neck
        elif bone.startswith("finger") and bone[6] != "1":
            turn = turn @ rotation(2, -curl if bone.endswith("L") else curl)
        turns[bone] = turn
    moves = np.stack([np.hstack([turns[b], (places[b] - turns[b] @ heads[b])[:, None]]) for b in base.order])
    blended = (base.weights @ moves.reshape(len(base.order), 12).astype(np.float32)).reshape(-1, 3, 4)
    return np.einsum("nij,nj->ni", blended[:, :, :3], vertices) + blended[:, :, 3], turns["head"]
