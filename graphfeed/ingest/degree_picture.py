"""Draws how degrees are distributed: for each edge type, the share of nodes with so many in-edges or more."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset_report import DatasetReport
from graphfeed.ops.optional import import_optional


def shares(degrees: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the degrees from 1 that there are, and the share of nodes with that degree or more.

    Example:
        >>> shares(np.array([0, 1, 1, 3]))
        (array([1, 3]), array([0.75, 0.25]))
    """
    found, counts = np.unique(degrees, return_counts=True)
    share = counts[::-1].cumsum()[::-1] / max(degrees.size, 1)
    return found[found > 0], share[found > 0]


def draw_degrees(report: DatasetReport, path: Path) -> None:
    """Write a picture of the in-degrees of each edge type, as PNG. Needs matplotlib.

    Raises:
        ImportError: matplotlib is not installed.
    """
    remedy = "pip install 'graphfeed[picture]'"
    figure = import_optional("matplotlib.figure", "a picture", remedy).Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for kind, own in report.edges.items():
        axes.plot(*shares(own.in_degrees), drawstyle="steps-post", label=kind or "edges")
    axes.set(xscale="log", yscale="log", xlabel="in-degree", ylabel="share of nodes with as many or more")
    axes.set_title(f"In-degrees of {report.name}" if report.name else "In-degrees")
    axes.spines[["top", "right"]].set_visible(False)
    if report.edges:
        axes.legend(frameon=False)
    figure.savefig(path, format="png", dpi=150)
