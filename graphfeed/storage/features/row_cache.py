"""What caches of rows have in common, wherever they keep them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Self

import torch

from graphfeed.ops.checks import check_vector

Reader = Callable[[torch.Tensor], torch.Tensor]
"""Takes keys and returns a row for each."""


class RowCache(ABC):
    """Rows by key, of features whose rows are far; a base.

    Args:
        row_shape: Shape of a row.
        dtype: Of the rows.
        device: Where the rows are kept and returned.
    """

    def __init__(self, row_shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._row_bytes = prod(row_shape) * dtype.itemsize
        self._version = 0
        self._hits = 0
        self._misses = 0

    @classmethod
    @abstractmethod
    def within(cls, max_size_in_bytes: int, row_shape: Sequence[int], dtype: torch.dtype, *args: Any) -> Self:
        """Return a cache of as many rows as fit in so many bytes, with all that it remembers of them."""

    @abstractmethod
    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read."""

    @abstractmethod
    def begin(self, keys: torch.Tensor, offset: int = 0) -> tuple[Reader, torch.Tensor]:
        """Do the first half of `query_and_replace`: return its second half, and the keys to read for it, each once."""

    @abstractmethod
    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key, and overwrite those that are there; of equal keys the last one's row stays."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all rows; the statistics stay."""

    @property
    @abstractmethod
    def max_size_in_bytes(self) -> int:
        """What the cache takes in memory when it is full: the rows, and what it remembers of them."""

    @property
    def hits(self) -> int:
        """How many rows were asked for and not missing."""
        return self._hits

    @property
    def misses(self) -> int:
        """How many rows were missing; a key that one query asks for several times counts once."""
        return self._misses

    @property
    def miss_rate(self) -> float:
        """Misses over all rows asked for; 0 before the first."""
        return self._misses / max(1, self._hits + self._misses)

    def is_pinned(self) -> bool:
        """Tell whether the rows lie in page-locked memory."""
        return False

    def _check_keys(self, keys: torch.Tensor, offset: int) -> None:
        check_vector("keys", keys)
        least = int(keys.min()) if keys.numel() else 0
        if least + offset < 0:
            raise out_of_range(least, offset)

    def _check_rows(self, values: torch.Tensor, keys: torch.Tensor) -> None:
        if values.shape[0] != keys.numel():
            raise ValueError(f"values must have one row a key, but has {values.shape[0]} for {keys.numel()} keys")
        if prod(values.shape[1:]) * values.dtype.itemsize != self._row_bytes:
            raise ValueError(
                f"rows of values must have {self._row_bytes} bytes as those of the cache, but are {values.dtype} of "
                f"shape {tuple(values.shape[1:])}"
            )


def out_of_range(key: int, offset: int) -> IndexError:
    """Return what is wrong with a key."""
    return IndexError(f"keys must be 0 or more with the offset {offset}, but one is {key}")
