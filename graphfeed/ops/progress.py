"""How long a step that is done once per graph or per data set will take."""

from typing import Any

from tqdm import tqdm


def progress_bar(name: str, total: int, unit: str) -> "tqdm[Any]":
    """Return a progress bar, which appears after a second, and only in a terminal."""
    return tqdm(desc=name, total=total, unit=unit, unit_scale=True, disable=None, delay=1)
