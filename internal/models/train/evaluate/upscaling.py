"""Held-out pictures for the upscalers: small versions of them, scores and sheets."""

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import sources

from . import measures

SIDE = 512
SCALES = (2, 4)
QUALITIES = (60, 75, 85, 95)
# Where the crop lies in the free space, for those larger than SIDE.
PLACES = {
    "EveningGlow": (0.5, 0.6), "FallenLeaf": (0.75, 0.5), "Dune.jpg": (0.5, 1.0), "LadyBird": (0.8, 0.3),
}
PHOTOGRAPHS = {
    "astronaut": "astronaut.png", "chelsea": "chelsea.png", "motorcycle": "motorcycle_left.png",
    "camera": "camera.png", "rocket": "rocket.jpg", "raccoon": "face.dat", "eveningglow": "EveningGlow",
    "fallenleaf": "FallenLeaf", "dune": "Dune.jpg", "ladybird": "LadyBird",
}
FACES = {
    "face-1": "testimonials-1", "face-2": "testimonials-2", "face-3": "testimonials-3", "face-4": "joe-gardner",
    "face-5": "kaci-baum", "face-6": "ayo-ogunseinde", "face-7": "clem-onojeghuo-2", "face-8": "clem-onojeghuo-3",
}
TEXT = (
    "Pictor enlarges pictures. 0123456789 & the quick brown fox jumps over the lazy dog; "
    "PACK MY BOX WITH FIVE DOZEN LIQUOR JUGS? (x+y)^2 = x^2 + 2xy + y^2  @ # % [ ] { } "
)


def crop(image, place):
    width, height = (min(SIDE, v) // 4 * 4 for v in image.size)
    x, y = int((image.width - width) * place[0]), int((image.height - height) * place[1])
    return image.crop((x, y, x + width, y + height))


def text(number):
    """A page of text, in a font that training does not know."""
    papers = ["white", "#f4ecd8", "black", "#20304a", "white"]
    inks = ["black", "#402010", "white", "#ffd060", "#b00020"]
    page = Image.new("RGB", (4 * SIDE, 4 * SIDE), papers[number])
    draw, y, size = ImageDraw.Draw(page), 20, 40 + 14 * number
    while y < page.height:
        shift = (y * 7) % len(TEXT)
        draw.text((24, y), TEXT[shift:] + TEXT[:shift], inks[number], ImageFont.load_default(size))
        y, size = y + int(size * 1.3), 40 + (size * 5 + 11) % 130
    return page.resize((SIDE, SIDE), Image.BICUBIC)


def lineart(number):
    """Lines, curves and filled shapes; the seed is the number."""
    random = np.random.default_rng(number)
    page = Image.new("RGB", (4 * SIDE, 4 * SIDE), ["white", "white", "#fffbe8", "#101018", "white"][number])
    draw = ImageDraw.Draw(page)
    for _ in range(70):
        x, y = (int(v) for v in random.integers(0, page.width, 2))
        r, width = int(random.integers(30, 500)), int(random.integers(3, 17))
        colour = "black" if number in (0, 2) else tuple(int(v) for v in random.integers(0, 256, 3))
        shape = random.integers(0, 4)
        if shape == 0:
            angle = random.uniform(0, 6.28)
            draw.line([x, y, x + 2 * r * np.cos(angle), y + 2 * r * np.sin(angle)], colour, width)
        elif shape == 1:
            draw.arc([x - r, y - r, x + r, y + int(r * 0.6)], 0, int(random.integers(60, 361)), colour, width)
        elif shape == 2:
            draw.polygon([(x, y), (x + r, y + r // 2), (x + r // 3, y + r)], None, colour, width)
        else:
            draw.ellipse([x, y, x + r // 4, y + r // 4], colour)
    return page.resize((SIDE, SIDE), Image.BICUBIC)


def find(rows, part):
    return next(s for s in rows if s.use == "evaluate" and part in s.path)


def truths(cache):
    """Yields (kind, name, picture)."""
    rows = sources.table()
    for name, part in PHOTOGRAPHS.items():
        yield "photo", name, crop(sources.picture(cache, find(rows, part)), PLACES.get(part, (0.5, 0.5)))
    for name, part in FACES.items():
        yield "face", name, crop(sources.picture(cache, find(rows, part)), (0.5, 0.2))
    for number in range(5):
        yield "text", f"text-{number}", text(number)
        yield "line art", f"lineart-{number}", lineart(number)


def smalls(kind, picture, scale):
    """Yields (how it was made small, small picture)."""
    size = (picture.width // scale, picture.height // scale)
    small = picture.resize(size, Image.BICUBIC)
    yield "bicubic", small
    if kind != "photo":
        return
    yield "aliased", picture.resize(size, Image.NEAREST)
    for quality in QUALITIES:
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=quality, subsampling=2)
        yield f"jpeg-{quality}", Image.open(buffer).convert("RGB")


def prepare(cache, folder):
    """Writes truth/ and the small pictures as PNG."""
    (folder / "truth").mkdir(parents=True, exist_ok=True)
    for kind, name, picture in truths(cache):
        picture.save(folder / "truth" / f"{name}.png")
        for scale in SCALES:
            target = folder / f"upscale-{scale}x"
            target.mkdir(exist_ok=True)
            for how, small in smalls(kind, picture, scale):
                small.save(target / f"{name}.{kind.replace(' ', '')}.{how}.png")


def rgb(path):
    return np.asarray(Image.open(path).convert("RGB"))


def models(scale):
    """The names of the shipped models, the default one first."""
    return f"upscale-{scale}x", f"upscale-{scale}x-fast"


def scores(folder, rendered, scale):
    """A list of dicts: name, kind, how, and for each method its measures."""
    found = []
    for file in sorted((folder / f"upscale-{scale}x").glob("*.png")):
        name, kind, how = file.stem.split(".")
        truth, small = rgb(folder / "truth" / f"{name}.png"), Image.open(file).convert("RGB")
        size = (truth.shape[1], truth.shape[0])
        row = {"name": name, "kind": kind, "how": how, "small": {"blocks": measures.blocks(measures.luma(np.asarray(small)), 1)}}
        for method, filter_ in (("bicubic", Image.BICUBIC), ("Lanczos", Image.LANCZOS)):
            row[method] = measures.enlargement(np.asarray(small.resize(size, filter_)), truth, scale)
        for model in models(scale):
            row[model] = measures.enlargement(rgb(rendered / model / file.name), truth, scale)
        found.append(row)
    return found


def sheet(folder, rendered, scale, stem, out):
    """low-res | Lanczos | fast | ours | truth, of the middle of the picture."""
    name = stem.split(".")[0]
    truth = Image.open(folder / "truth" / f"{name}.png").convert("RGB")
    small = Image.open(folder / f"upscale-{scale}x" / f"{stem}.png").convert("RGB")
    ours, fast = (Image.open(rendered / model / f"{stem}.png").convert("RGB") for model in models(scale))
    side = min(256, *truth.size)
    box = [(truth.width - side) // 2, (truth.height - side) // 2]
    box += [box[0] + side, box[1] + side]
    strip = Image.new("RGB", (5 * 2 * side + 32, 2 * side), "white")
    for i, image in enumerate([
        small.resize(truth.size, Image.NEAREST), small.resize(truth.size, Image.LANCZOS), fast, ours, truth,
    ]):
        strip.paste(image.crop(box).resize((2 * side, 2 * side), Image.NEAREST), (i * (2 * side + 8), 0))
    strip.save(out, compress_level=1)


def gains(rows, model):
    """What a model gains over bicubic in dB: "mean [95 %]", and the picture with the least gain."""
    over = {r["name"]: r[model]["psnr"] - r["bicubic"]["psnr"] for r in rows}
    mean, low, high = measures.bootstrap(list(over.values()))
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]", min(over, key=over.get), min(over.values())


def table(rows, kind, scale):
    """The lines of one table of MODELS.md."""
    chosen = [r for r in rows if r["kind"] == kind and r["how"] == "bicubic"]
    lines = []
    for method in ("bicubic", "Lanczos", *models(scale)):
        cells = [measures.bootstrap([r[method][m] for r in chosen]) for m in ("psnr", "ssim")]
        colour = []
        for plane in ("cb", "cr"):
            known = [r[method][plane] for r in chosen if not np.isnan(r[method][plane])]
            colour.append(f"{np.mean(known):.2f}" if known else "-")
        lines.append(
            f"| {method} | {cells[0][0]:.2f} [{cells[0][1]:.2f}, {cells[0][2]:.2f}] | {cells[1][0]:.4f} "
            f"| {' | '.join(colour)} |"
        )
    lines.append("")
    for model in models(scale):
        mean, name, least = gains(chosen, model)
        lines.append(f"- `{model}` over bicubic: {mean} dB on {len(chosen)} pictures, least {least:+.2f} dB ({name})")
    return [*lines, ""]


def report(folder, rendered, sheets):
    """The Markdown of the upscalers, and their sheets."""
    lines = []
    for scale in SCALES:
        rows = scores(folder, rendered, scale)
        for kind in ("photo", "face", "text", "lineart"):
            lines += [f"### {scale}x, {kind}\n", "| method | PSNR-Y, dB [95 %] | SSIM | Cb, dB | Cr, dB |", "|---|---|---|---|---|"]
            lines += table(rows, kind, scale)
        lines += [f"### {scale}x, photographs, damaged input\n",
                  "| input | bicubic, dB | Lanczos, dB | model | dB | over bicubic [95 %] | least | blocks of the small picture | of model |",
                  "|---|---|---|---|---|---|---|---|---|"]
        for how in ("aliased", *(f"jpeg-{q}" for q in QUALITIES)):
            chosen = [r for r in rows if r["how"] == how]
            mean = {m: np.mean([r[m]["psnr"] for r in chosen]) for m in ("bicubic", "Lanczos", *models(scale))}
            shown = {m: np.mean([r[m]["blocks"] for r in chosen]) for m in ("small", *models(scale))}
            for model in models(scale):
                gain, name, least = gains(chosen, model)
                lines.append(
                    f"| {how} | {mean['bicubic']:.2f} | {mean['Lanczos']:.2f} | `{model}` | {mean[model]:.2f} | {gain} | {least:+.2f} ({name}) "
                    f"| {shown['small']:.3f} | {shown[model]:.3f} |"
                )
        lines.append("")
        for row in rows:
            if row["how"] in ("bicubic", "jpeg-60", "aliased"):
                stem = f"{row['name']}.{row['kind']}.{row['how']}"
                sheet(folder, rendered, scale, stem, sheets / f"upscale-{scale}x.{stem}.png")
    return lines
