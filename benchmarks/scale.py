"""Sizes of benchmarks: in full, or for a quick run that only shows that everything works."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.graphs import ARXIV, PRODUCTS, QUICK, Shape


@dataclass(frozen=True)
class Scale:
    """The sizes of a run."""

    cache: Path
    products: Shape
    arxiv: Shape
    batch_size: int
    gathered_rows: int
    repeats: int
    epoch_batches: int
    """Mini-batches in one measured epoch of the loader."""
    processes: int
    """Number of worker processes of the loader; 0 leaves them out."""
    cached_rows: int
    """Number of rows of 512 bytes in the file that is read through a cache."""
    cached_batches: int
    cached_batch_rows: int
    largest_message: int
    """Bytes of the largest message through a channel."""
    step_size: int
    """Rows of the matrices that a training step multiplies."""
    mag_divisor: int
    """Factor by which the graph with types is smaller than ogbn-mag."""
    started_bytes: int
    """The size of the graph that worker processes start with."""
    compiled_pipelines: int
    """Maximum number of pipelines that begin without kernels on disk."""
    out_of_core: float
    """Size of the graph that exceeds memory, as a multiple of 16 million nodes."""
    threads: tuple[int, ...] = ()
    """Numbers of threads to compare; if empty, 1, 2, 4 and so on up to the number of cores."""


def full(cache: Path, repeats: int) -> Scale:
    """Return the sizes for which the goals are defined."""
    return Scale(
        cache, PRODUCTS, ARXIV, 1024, 135_000, repeats, 40, 2, 1_000_000, 60, 50_000, 50_000_000, 2048, 1,
        2_000_000_000, 6, 1.0,
    )  # fmt: skip


def quick(cache: Path, repeats: int) -> Scale:
    """Return sizes that take seconds; their ratios mean nothing."""
    return Scale(
        cache, QUICK, QUICK, 64, 2_000, repeats, 4, 0, 20_000, 6, 2_000, 100_000, 64, 100, 40_000_000, 1, 0.001
    )


def large(scale: Scale) -> Scale:
    """Return sizes where features don't fit most machines: a file of 8 GB with a cache of 1 GB."""
    return replace(scale, cached_rows=15_625_000, cached_batches=120, cached_batch_rows=135_000)


def lacks_room(folder: Path, what: str, size: int) -> str:
    """Create a folder; return a line if its disk lacks room for the files of a benchmark, and "" otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    return f"{what}: this takes {size / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f}\n" if free < 1.2 * size else ""
