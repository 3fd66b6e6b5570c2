"""Power-law graphs of well-known shapes: generated once from a random seed, kept on disk, loaded into memory.

Edge `e` of a recursive-matrix (R-MAT) graph is a pure function of (seed, e), so the graph is made
in two passes over the edges, one that counts and one that fills, and no edge list is ever stored.
Every edge is put in both directions, and the node ids are permuted so that the hubs are spread.
"""

import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphfeed.ops.cpu.jit import Int64s, UInt64, device_function, kernel

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

BLOCK_ROWS = 1 << 16
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Shape:
    """Parameters of a generated graph; equal shapes give equal arrays."""

    name: str
    num_nodes: int
    num_edges: int
    """Number of stored edges in both directions, an even number."""
    num_features: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_nodes < 1 or self.num_features < 1:
            message = f"{self.name}: num_nodes and num_features must be at least 1, got {self}"
            raise ValueError(message)
        if self.num_edges < 0 or self.num_edges % 2:
            message = f"num_edges is {self.num_edges}, but every edge is stored in both directions; give an even number"
            raise ValueError(message)

    @property
    def folder(self) -> str:
        """Name of the cache folder, which contains all fields."""
        return f"{self.name}-{self.num_nodes}-{self.num_edges}-{self.num_features}-{self.seed}"


PRODUCTS = Shape("products", 2_449_029, 123_718_280, 100)
ARXIV = Shape("arxiv", 169_343, 2_315_598, 128)
QUICK = Shape("quick", 20_000, 400_000, 16)


def load_edges(shape: Shape, cache: Path) -> tuple[Ints, Ints]:
    """Return `indptr` and `indices`: column `v` has the sources of the edges into node `v`."""
    folder = find(shape, cache)
    # np.load without a memory map reads into NumPy's own allocation, which asks for huge pages.
    return np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")


def load_features(shape: Shape, cache: Path) -> Floats:
    """Return one row of random numbers per node."""
    features: Floats = np.load(find(shape, cache) / "features.npy")
    return features


def find(shape: Shape, cache: Path) -> Path:
    """Return the folder of a graph in the cache, and generate the graph if it is missing."""
    folder = cache / shape.folder
    if not folder.is_dir():
        _store(shape, cache, folder)
    return folder


def default_cache() -> Path:
    """The user's cache folder for generated graphs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "graphfeed" / "benchmarks"


def make_edges(shape: Shape) -> tuple[Ints, Ints]:
    """Return `indptr` and `indices` of the shape's graph."""
    names = np.random.default_rng(shape.seed).permutation(shape.num_nodes)
    # The matrix is a power of two wide; draws that fall outside of the wanted nodes are repeated.
    levels = max(1, math.ceil(math.log2(shape.num_nodes)))
    pairs = shape.num_edges // 2
    key = np.uint64(shape.seed) * GOLDEN
    indptr = np.zeros(shape.num_nodes + 1, np.int64)
    _count_edges(key, levels, pairs, names, indptr)
    np.cumsum(indptr, out=indptr)
    indices = np.empty(shape.num_edges, np.int64)
    _fill_edges(key, levels, pairs, names, indptr[:-1].copy(), indices)
    return indptr, indices


def _store(shape: Shape, cache: Path, folder: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{shape.folder}-", dir=cache))
    try:
        indptr, indices = make_edges(shape)
        np.save(unfinished / "indptr.npy", indptr)
        np.save(unfinished / "indices.npy", indices)
        del indptr, indices
        _store_features(shape, unfinished / "features.npy")
        try:
            unfinished.rename(folder)
        except OSError:
            # Another process has finished the same graph in the meantime.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _store_features(shape: Shape, path: Path) -> None:
    size = (shape.num_nodes, shape.num_features)
    rng = np.random.default_rng(shape.seed)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=size)
    for start in range(0, shape.num_nodes, BLOCK_ROWS):
        rows = file[start : start + BLOCK_ROWS]
        rows[:] = rng.standard_normal(rows.shape, dtype=np.float32)
    file.flush()


@device_function
def _mix(x: Any) -> Any:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@device_function
def _edge(key: Any, levels: int, number: int, num_nodes: int) -> tuple[int, int]:
    """Draw the endpoints of edge `number`: at every level of the matrix, one byte picks a quadrant.

    In 256ths, the quadrants weigh 139, 52, 52 and 13: less skewed than the usual 0.57, for fewer
    nodes without an edge.
    """
    state = _mix(key + np.uint64(number))
    while True:
        row: Any = 0
        column: Any = 0
        bits = np.uint64(0)
        for level in range(levels):
            if level & 7 == 0:
                state += GOLDEN
                bits = _mix(state)
            byte = np.int64(bits & np.uint64(255))
            bits >>= np.uint64(8)
            low = byte >= 191
            right = ((byte >= 139) & (byte < 191)) | (byte >= 243)
            row = 2 * row + low
            column = 2 * column + right
        if row < num_nodes and column < num_nodes:
            return row, column


@kernel
def _count_edges(key: UInt64, levels: int, pairs: int, names: Int64s, indptr: Int64s) -> None:
    """Add the degree of node `v` to `indptr[v + 1]`."""
    for number in range(pairs):
        row, column = _edge(key, levels, number, len(names))
        indptr[names[row] + 1] += 1
        indptr[names[column] + 1] += 1


@kernel
def _fill_edges(key: UInt64, levels: int, pairs: int, names: Int64s, cursor: Int64s, indices: Int64s) -> None:
    """Write both directions of every edge. `cursor` is the start of each column at first."""
    for number in range(pairs):
        row, column = _edge(key, levels, number, len(names))
        one = names[row]
        other = names[column]
        indices[cursor[one]] = other
        cursor[one] += 1
        indices[cursor[other]] = one
        cursor[other] += 1
