"""Plain text tables of medians."""

import os
import platform
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import Times

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HEADINGS = ("what", "unit", "median", "quartiles", "ratio", "goal", "")


@dataclass(frozen=True)
class Goal:
    """A bound on a number."""

    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the value is within the bound."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    what: str
    unit: str
    times: Times
    ratio: float | None = None
    """Ratio to the reference in the table's title."""
    goal: Goal | None = None
    counted: bool = False
    """Whether each run gives the same number, which is counted once; otherwise, numbers are samples."""

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        first, third = self.times.quartiles
        return (
            self.what,
            self.unit,
            number(self.times.median),
            f"{number(first)} - {number(third)}",
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.goal is None else str(self.goal),
            "" if self.goal is None else ("met" if self.goal.met else "not met"),
        )


def compare(
    times: Mapping[str, Times], reference: str, unit: str, factor: float = 1.0, goals: Mapping[str, float] | None = None
) -> list[Row]:
    """Return a row for each case, with its ratio to the reference in the same rounds; goals bound ratios from above."""
    ratios = {name: own.over(times[reference]) for name, own in times.items()}
    bounds = {name: Goal(ratios[name], goal) for name, goal in (goals or {}).items()}
    return [Row(name, unit, own.times(factor), ratios[name], bounds.get(name)) for name, own in times.items()]


def number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


class Table(str):
    """A table as text, with its heading and its rows."""

    heading: str
    rows: Sequence[Row]


def render(title: str, rows: Sequence[Row]) -> Table:
    """Return a table."""
    text = [title, *align([HEADINGS, *(row.cells() for row in rows)], left=(0, 1, 6)), ""]
    table = Table("\n".join(text))
    table.heading, table.rows = title, rows
    return table


def align(lines: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Return lines with aligned columns; those in `left` are left-aligned."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def machine() -> str:
    """Describe the setup that the numbers depend on."""
    pages = HUGE_PAGES.read_text().strip() if HUGE_PAGES.exists() else "unknown"
    return (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"load {os.getloadavg()[0]:.1f}, huge pages {pages}; "
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"Numba {version('numba')}, torch {torch.__version__}"
    )
