"""Measures of quality, and how sure they are."""

import cv2
import numpy as np


def luma(rgb):
    """BT.601 luma in 16..235."""
    return 16 + rgb.astype(np.float64) @ np.array([65.481, 128.553, 24.966]) / 255


def chroma(rgb):
    """BT.601 Cb and Cr, of full range."""
    r, g, b = np.moveaxis(rgb.astype(np.float64), 2, 0)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return (b - y) / 1.772, (r - y) / 1.402


def decibels(a, b, border):
    difference = (a - b)[border:-border, border:-border]
    return 10 * np.log10(255**2 / max(1e-9, np.mean(difference**2)))


def ssim(a, b, border):
    """Structural similarity with the usual Gaussian window of 11 pixels."""
    a, b = (p[border:-border, border:-border] for p in (a, b))

    def blur(p):
        return cv2.GaussianBlur(p, (11, 11), 1.5)[5:-5, 5:-5]

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    covariance = blur(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float(np.mean(
        ((2 * mean_a * mean_b + c1) * (2 * covariance + c2))
        / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    ))


def blocks(y, scale):
    """How much larger than elsewhere luma's steps are at the borders of what were JPEG's blocks of 8 pixels.

    The steps are those between the places of the small picture's pixels; 1 means that no blocks show.
    """
    height, width = (n // scale for n in y.shape)
    small = y[: height * scale, : width * scale].reshape(height, scale, width, scale).mean((1, 3))
    at, elsewhere = [], []
    for plane in (small, small.T):
        steps = np.abs(np.diff(plane, axis=0)).mean(1)  # steps[i]: from row i to the next
        border = np.arange(len(steps)) % 8 == 7
        at.append(steps[border].mean())
        elsewhere.append(steps[~border].mean())
    return sum(at) / max(sum(elsewhere), 1e-9)


def enlargement(guess, truth, scale):
    """PSNR-Y, SSIM, PSNR of Cb and of Cr (NaN for grey pictures), and how much blocks show; without a border of `scale` pixels."""
    grey = np.ptp(truth.astype(int), axis=2).max() == 0
    cb, cr = chroma(truth)
    own_cb, own_cr = chroma(guess)
    return {
        "psnr": decibels(luma(guess), luma(truth), scale),
        "ssim": ssim(luma(guess), luma(truth), scale),
        "cb": np.nan if grey else decibels(own_cb, cb, scale),
        "cr": np.nan if grey else decibels(own_cr, cr, scale),
        "blocks": blocks(luma(guess), scale),
    }


def contour(mask):
    eroded = cv2.erode(mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=1)
    return mask & (eroded == 0)


def nearest(truth, decided):
    """The mask with every undecided pixel given to the nearest decided side."""
    away = [
        cv2.distanceTransform((~(side & decided)).astype(np.uint8), cv2.DIST_L2, 5) for side in (truth, ~truth)
    ]
    return np.where(decided, truth, away[0] < away[1])


def boundary(guess, truth, decided):
    """F of the contours, which match within 0.75 % of the diagonal.

    Where nothing is decided, only a contour that matches counts.
    """
    reach = max(2, round(0.0075 * np.hypot(*truth.shape)))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1,) * 2)
    own, true = contour(guess), contour(nearest(truth, decided))
    near_true = cv2.dilate(true.astype(np.uint8), disc) > 0
    near_own = cv2.dilate(own.astype(np.uint8), disc) > 0
    own &= decided | near_true
    if not own.any() or not true.any():
        return float(own.any() == true.any())
    precision, recall = near_true[own].mean(), near_own[true].mean()
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def cutout(alpha, truth, decided=None):
    """IoU at one half, mean absolute error and boundary F of an alpha in 0..1."""
    decided = np.ones(truth.shape, bool) if decided is None else decided
    guess, subject = alpha > 0.5, truth > 0.5
    union = ((guess | subject) & decided).sum()
    return {
        "iou": (guess & subject & decided).sum() / max(1, union),
        "mae": np.abs(alpha - truth)[decided].mean(),
        "f": boundary(guess, subject, decided),
    }


def bootstrap(values, seed=1, rounds=10000):
    """Mean, and its 95 % interval over pictures drawn again."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    random = np.random.default_rng(seed)
    means = values[random.integers(0, len(values), (rounds, len(values)))].mean(1)
    return values.mean(), *np.percentile(means, [2.5, 97.5])
