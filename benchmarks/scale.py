"""How much is measured: in full, or a quick run that only shows that everything works."""

from dataclasses import dataclass
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
    """Worker processes that the loader is tried with; 0 leaves them out."""


def full(cache: Path, repeats: int) -> Scale:
    """Return the sizes that the goals are about."""
    return Scale(cache, PRODUCTS, ARXIV, 1024, 135_000, repeats, 40, 2)


def quick(cache: Path, repeats: int) -> Scale:
    """Return sizes that take seconds; their ratios mean nothing."""
    return Scale(cache, QUICK, QUICK, 64, 2_000, repeats, 4, 0)
