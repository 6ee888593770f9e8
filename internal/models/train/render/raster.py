"""Triangles drawn into a depth buffer, by raster.c."""

import ctypes
import functools
import pathlib
import subprocess
import tempfile

import numpy as np

FAR = 1e9


@functools.cache
def library():
    """raster.c, compiled by the system's C compiler."""
    source = pathlib.Path(__file__).with_name("raster.c")
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "raster.so"
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", target, source, "-lm"], check=True)
        return ctypes.CDLL(str(target))


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


class Buffer:
    """What is nearest at each pixel: depth, the number of the triangle or -1, and two of its weights."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.depth = np.full((height, width), FAR, np.float32)
        self.owner = np.full((height, width), -1, np.int32)
        self.first = np.zeros((height, width), np.float32)
        self.second = np.zeros((height, width), np.float32)
        self.triangles = 0

    def draw(self, points, inverse, triangles, uv=None, opacity=None):
        """Adds triangles and returns the range of their numbers."""
        points, inverse = np.ascontiguousarray(points, np.float32), np.ascontiguousarray(inverse, np.float32)
        triangles = np.ascontiguousarray(triangles, np.int32)
        if opacity is not None:
            uv, opacity = np.ascontiguousarray(uv, np.float32), np.ascontiguousarray(opacity, np.uint8)
        height, width = (0, 0) if opacity is None else opacity.shape
        library().raster(
            pointer(points), pointer(inverse), pointer(triangles), len(triangles), pointer(uv), pointer(opacity), width, height,
            self.width, self.height, pointer(self.depth), pointer(self.owner), pointer(self.first), pointer(self.second),
            self.triangles,
        )
        start, self.triangles = self.triangles, self.triangles + len(triangles)
        return start, self.triangles


def normals(vertices, triangles):
    """The normals of vertices, from the triangles around them."""
    a, b, c = (vertices[triangles[:, i]] for i in range(3))
    faces = np.cross(b - a, c - a)
    total = np.zeros_like(vertices)
    for corner in range(3):
        for axis in range(3):
            total[:, axis] += np.bincount(triangles[:, corner], faces[:, axis], minlength=len(vertices))
    return unit(total)


def unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
