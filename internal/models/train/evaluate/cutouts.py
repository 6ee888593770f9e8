"""Held-out composites and real photographs for background removal."""

import csv
import io
import tarfile
from concurrent import futures

import cv2
import numpy as np
from PIL import Image

import sources

from . import measures

SIDE = 512
GROUPS = {"people": ("mh", "mhb"), "animals": ("zad",), "objects": ("obj",)}
PER_GROUP = 30
# Validation photographs, which neither the shipped nor a later model saw.
GROUNDS = (
    "Wine_by", "castle-maintenon", "about-bg", "nature/Garden", "picosdeeuropa", "fabio-mangione", "products-03", "img/bg2",
)
MASKS = sources.EVAL


def foregrounds(group):
    """The held-out cut-outs of a group: RGBA arrays of floats in 0..1."""
    for name in GROUPS[group]:
        with tarfile.open(MASKS / "cutouts" / f"{name}-held.tar") as tar:
            for member in sorted(tar.getmembers(), key=lambda m: m.name):
                image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGBA")
                yield np.asarray(image, np.float32) / 255


def composite(cutout, ground, random):
    """A cut-out on a photograph: (RGB bytes, alpha bytes)."""
    height, width = cutout.shape[:2]
    scale = SIDE * random.uniform(0.45, 0.95) / max(height, width)
    size = (max(8, int(width * scale)), max(8, int(height * scale)))
    packed = cutout.copy()
    packed[..., :3] *= packed[..., 3:]
    packed = cv2.resize(packed, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC).clip(0, 1)
    if random.random() < 0.5:
        packed = packed[:, ::-1]
    canvas = np.zeros((SIDE, SIDE, 4), np.float32)
    x = int((SIDE - size[0]) * random.uniform(0.15, 0.85))
    y = int((SIDE - size[1]) * random.uniform(0.4, 1.0))
    canvas[y : y + size[1], x : x + size[0]] = packed

    side = int(min(ground.shape[:2]) * random.uniform(0.4, 1.0))
    top, left = (int(random.integers(0, n - side + 1)) for n in ground.shape[:2])
    scene = cv2.resize(ground[top : top + side, left : left + side], (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    scene = scene.astype(np.float32) / 255
    if random.random() < 0.5:
        scene = cv2.GaussianBlur(scene, (0, 0), random.uniform(0.5, 5))
    alpha = canvas[..., 3]
    colour = canvas[..., :3] * random.uniform(0.75, 1.15)
    near = scene.mean((0, 1)) - colour.sum((0, 1)) / max(alpha.sum(), 1)
    colour = colour + near * random.uniform(0, 0.4) * alpha[..., None]
    shadow = cv2.GaussianBlur(cv2.warpAffine(alpha, np.float32([[1, 0, 12], [0, 1, 8]]), (SIDE, SIDE)), (0, 0), 9)
    scene = scene * (1 - random.uniform(0, 0.5) * shadow[..., None])
    image = scene * (1 - alpha[..., None]) + colour
    image += random.normal(0, random.uniform(0, 0.03), image.shape)
    return (image.clip(0, 1) * 255).round().astype(np.uint8), (alpha * 255).round().astype(np.uint8)


def photographs(cache):
    """Yields (name, RGB picture, mask) of the hand-checked masks."""
    rows = {s.sha256: s for s in sources.table()}
    with open(MASKS / "masks.csv", newline="") as f:
        for entry in csv.DictReader(f):
            source = rows[entry["sha256"]]
            mask = Image.open(MASKS / f"{entry['name']}.png").convert("L")
            image = sources.picture(cache, source).resize(mask.size, Image.BOX)
            yield entry["name"], image, mask


def prepare(cache, folder):
    """Writes remove-bg/ and the masks beside it."""
    target, masks = folder / "remove-bg", folder / "mask"
    target.mkdir(parents=True, exist_ok=True)
    masks.mkdir(exist_ok=True)
    rows = [s for s in sources.table() if s.use == "validate"]
    grounds = [np.asarray(sources.picture(cache, next(s for s in rows if part in s.path))) for part in GROUNDS]
    random = np.random.default_rng(7)
    for group in GROUPS:
        chosen = list(foregrounds(group))
        for number in range(PER_GROUP):
            cutout = chosen[int(random.integers(len(chosen)))]
            ground = grounds[int(random.integers(len(grounds)))]
            image, alpha = composite(cutout, ground, random)
            stem = f"{group}-{number:02d}"
            Image.fromarray(image).save(target / f"{stem}.png")
            Image.fromarray(alpha).save(masks / f"{stem}.png")
    for name, image, mask in photographs(cache):
        image.save(target / f"photo-{name}.png")
        mask.save(masks / f"photo-{name}.png")


def grabcut(rgb):
    """OpenCV's GrabCut from a rectangle 5 % inside the border, 5 iterations.

    It works on a quarter of the pixels: on noisy pictures it takes minutes.
    """
    full = rgb.shape[1::-1]
    small = cv2.resize(rgb, (full[0] // 2, full[1] // 2), interpolation=cv2.INTER_AREA)
    height, width = small.shape[:2]
    marks = np.zeros((height, width), np.uint8)
    box = (int(width * 0.05), int(height * 0.05), int(width * 0.9), int(height * 0.9))
    cv2.setRNGSeed(1)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(np.ascontiguousarray(small[..., ::-1]), marks, box, *models, 5, cv2.GC_INIT_WITH_RECT)
    found = ((marks == cv2.GC_FGD) | (marks == cv2.GC_PR_FGD)).astype(np.float32)
    return cv2.resize(found, full, interpolation=cv2.INTER_LINEAR)


def sheet(rgb, result, mask, out):
    """photo | result on a checkerboard | mask."""
    tiles = (np.indices(rgb.shape[:2]) // 12).sum(0) % 2
    board = np.where(tiles, 255, 190)[..., None].repeat(3, 2)
    alpha = result[..., 3:].astype(float) / 255
    shown = result[..., :3] * alpha + board * (1 - alpha)
    gap = np.full((rgb.shape[0], 8, 3), 255)
    truth = mask[..., None].repeat(3, 2)
    Image.fromarray(np.hstack([rgb, gap, shown, gap, truth]).astype(np.uint8)).save(out, compress_level=1)


def measured(file, rendered, sheets):
    """The measures of one picture: ours and GrabCut's; and its sheet."""
    rgb = np.asarray(Image.open(file).convert("RGB"))
    mask = np.asarray(Image.open(file.parents[1] / "mask" / file.name).convert("L"))
    result = np.asarray(Image.open(rendered / "remove-bg" / file.name).convert("RGBA"))
    decided = mask != 128 if file.stem.startswith("photo-") else np.ones(mask.shape, bool)
    sheet(rgb, result, mask, sheets / f"remove-bg.{file.stem}.png")
    return tuple(measures.cutout(alpha, mask / 255.0, decided) for alpha in (result[..., 3] / 255.0, grabcut(rgb)))


def compare(folder, rendered, before):
    """Lines on how much better one rendering is than another, of the same pictures."""
    gains = {}
    for file in sorted((folder / "remove-bg").glob("*.png")):
        mask = np.asarray(Image.open(folder / "mask" / file.name).convert("L"))
        kind = file.stem.split("-")[0]
        decided = mask != 128 if kind == "photo" else np.ones(mask.shape, bool)
        new, old = (
            measures.cutout(np.asarray(Image.open(p / "remove-bg" / file.name))[..., 3] / 255.0, mask / 255.0, decided)
            for p in (rendered, before)
        )
        gains.setdefault(kind, []).append([new[m] - old[m] for m in ("iou", "mae", "f")])
    gains["all composites"] = [row for kind, rows in gains.items() if kind != "photo" for row in rows]
    lines = ["| pictures | IoU [95 %] | MAE [95 %] | boundary F [95 %] | better IoU |", "|---|---|---|---|---|"]
    for kind, rows in gains.items():
        cells = ["{:+.3f} [{:+.3f}, {:+.3f}]".format(*measures.bootstrap(values)) for values in zip(*rows)]
        lines.append(f"| {kind} ({len(rows)}) | {' | '.join(cells)} | {sum(r[0] > 0 for r in rows)} |")
    return lines


def report(folder, rendered, sheets):
    """The Markdown of background removal, and its sheets."""
    ours, classic = {}, {}
    files = sorted((folder / "remove-bg").glob("*.png"), reverse=True)
    with futures.ProcessPoolExecutor() as pool:  # GrabCut takes seconds, on noisy pictures minutes
        found = pool.map(measured, files, [rendered] * len(files), [sheets] * len(files))
        for file, (own, other) in zip(files, found):
            kind = file.stem.split("-")[0]
            ours.setdefault(kind, {})[file.stem] = own
            classic.setdefault(kind, {})[file.stem] = other

    lines = ["| pictures | method | IoU [95 %] | MAE [95 %] | boundary F [95 %] | least IoU |", "|---|---|---|---|---|---|"]
    paired = []

    def interval(values):
        return "{:.3f} [{:.3f}, {:.3f}]".format(*measures.bootstrap(values))

    composites = [k for k in ours if k != "photo"]
    for title, kinds in [(k, [k]) for k in ours] + [("all composites", composites)]:
        for method, found in (("model", ours), ("GrabCut, 5 % rectangle", classic)):
            rows = [(stem, row) for k in kinds for stem, row in found[k].items()]
            least = min(rows, key=lambda r: r[1]["iou"])
            cells = [interval([row[m] for _, row in rows]) for m in ("iou", "mae", "f")]
            lines.append(f"| {title} ({len(rows)}) | {method} | {' | '.join(cells)} | {least[1]['iou']:.3f} ({least[0]}) |")
        gains = [ours[k][stem]["iou"] - classic[k][stem]["iou"] for k in kinds for stem in ours[k]]
        paired.append("{}: {:+.3f} [{:+.3f}, {:+.3f}], better on {} of {}".format(
            title, *measures.bootstrap(gains), sum(g > 0 for g in gains), len(gains)))
    lines += ["", "IoU of the model over that of GrabCut on the same pictures (paired bootstrap):\n"]
    lines += [f"- {line}" for line in paired]
    if "photo" in ours:
        lines += ["", "| photograph | model: IoU | MAE | boundary F | GrabCut: IoU |", "|---|---|---|---|---|"]
        for stem, row in ours["photo"].items():
            lines.append(f"| {stem[6:]} | {row['iou']:.3f} | {row['mae']:.3f} | {row['f']:.3f} | {classic['photo'][stem]['iou']:.3f} |")
    return lines + [""]
