"""Rows kept in a GPU's memory by key, of features whose rows lie elsewhere."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops import buffers, clear_sets, compact, copy_rows, find_in_sets, new_sets, replace_in_sets
from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import check_vector
from graphfeed.ops.rows.cache_sets import BYTES_PER_PLACE
from graphfeed.storage.features.row_cache import Reader, RowCache, out_of_range
from graphfeed.storage.memory.stream_ordered_lock import StreamOrderedLock


class LookedUp(NamedTuple):
    """What a cache had of some keys."""

    version: int
    """Of the cache, then."""
    request: int
    """The number of this look-up."""
    values: torch.Tensor
    """A row for each key, not yet filled in where it is missing."""
    missing_index: torch.Tensor
    """int64: the positions of those."""
    missing_keys: torch.Tensor


class GPUFeatureCache(RowCache):
    """As many rows as there is room for, in sets of at most 32: of each set those stay that were used last.

    A key's hash says which set it may lie in; a warp looks at a whole set. What one request used or put in, it doesn't
    throw out: what finds no place passes the cache by, so nothing waits for room, however small the cache is. Which
    keys are kept depends on the requests and their order alone.

    Any number of threads may use it, each on the stream that is torch's current one there: one at a time looks up or
    stores, and its stream waits for the one before; nobody holds the cache while waiting for the device, or while rows
    are fetched. A query waits for the device to learn how many keys are missing. Pickles as an empty cache of the same
    size.

    Its memory is `max_size_in_bytes`: the rows, and 16 bytes a row. Beside it each query holds the rows that it
    returns, those that are missing once more, and some hundred bytes for each key.

    Args:
        cache_shape: Shape (rows, ...): how many rows, and of what shape; sets are equally large, so that there may be a
            few less. `within` finds how many fit a number of bytes.
        dtype: Of the rows.
        device: Where they lie.

    Raises:
        ImportError: There is no CuPy, which the kernels need.
        RuntimeError: torch finds no CUDA device.

    Example:
        On a CPU, whose kernels do the same:

        >>> cache = GPUFeatureCache((2, 1), torch.float32, device="cpu")
        >>> far = torch.tensor([[0.0], [10.0], [20.0]])
        >>> cache.query_and_replace(torch.tensor([2, 0]), lambda keys: far[keys]).tolist()
        [[20.0], [0.0]]
        >>> cache.query(torch.tensor([1, 2]))[2].tolist()
        [1]
    """

    def __init__(
        self, cache_shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, device: torch.device | str = "cuda"
    ) -> None:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"a cache on {device} needs a CUDA device, and torch finds none; keep rows in memory with "
                "cpu_cached_feature instead"
            )
        self._sets = new_sets(cache_shape[0], device)
        kernels("rows.cache_sets", self._sets.keys)
        self._rows = torch.empty((self._sets.keys.numel(), *cache_shape[1:]), dtype=dtype, device=device)
        super().__init__(cache_shape[1:], dtype, self._rows.device)
        self._arguments = (tuple(cache_shape), dtype, device)
        self._lock = StreamOrderedLock(self._rows, self._sets.keys, self._sets.uses)
        self._request = 0

    @classmethod
    def within(
        cls,
        max_size_in_bytes: int,
        row_shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str = "cuda",
    ) -> Self:
        """Return a cache of as many rows as fit in so many bytes, with all that it remembers of them.

        Args:
            max_size_in_bytes: Bound for the cache's own `max_size_in_bytes`; where not one row fits, nothing is kept.
            row_shape: Shape of a row.
            dtype: As for the class, as what follows.
            device: As for the class.

        Example:
            >>> GPUFeatureCache.within(1_000_000, (128,), torch.float32, device="cpu").max_size_in_bytes
            996864
        """
        if max_size_in_bytes < 0:
            raise ValueError(f"max_size_in_bytes must be 0 or more, but is {max_size_in_bytes}")
        rows = max_size_in_bytes // (prod(row_shape) * dtype.itemsize + BYTES_PER_PLACE)
        return cls((rows, *row_shape), dtype, device)

    def query(self, keys: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what is known of the rows of some keys.

        Args:
            keys: int32 or int64, 1-D; in any order, and any number of times the same.
            offset: Added to the keys, to keep features apart that share a cache; 0 or more with each key.

        Returns:
            A row for each key, to be filled in where it is missing; the positions of those; and their keys.
        """
        found = self._look_up(keys, offset)
        distinct = self._distinct(found)[0]
        self._count(keys.numel(), distinct.numel())
        return found.values, found.missing_index, found.missing_keys

    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read.

        Args:
            keys: As for `query`.
            reader_fn: Called once, with the missing keys, each once, in order of first appearance; not at all where
                none is missing. What it returns may lie anywhere.
            offset: As for `query`.
        """
        finish, missing = self.begin(keys, offset)
        return finish(reader_fn(missing) if missing.numel() else self._rows[:0])

    def begin(self, keys: torch.Tensor, offset: int = 0) -> tuple[Reader, torch.Tensor]:
        """Do the first half of `query_and_replace`: return its second half, and the keys to read for it, each once.

        Both halves belong on the same stream.
        """
        found = self._look_up(keys, offset)
        distinct, local = self._distinct(found)
        self._count(keys.numel(), distinct.numel())

        def finish(rows: torch.Tensor) -> torch.Tensor:
            self._check_rows(rows, distinct)
            if distinct.numel():
                here = rows.to(self.device).contiguous()
                copy_rows(here, local, found.values, found.missing_index, distinct=True)
                self._store(distinct, here, offset, found)
            return found.values

        return finish, distinct

    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key, and overwrite those that are there; of equal keys the last one's row stays.

        Args:
            keys: As for `query`.
            values: A row for each key.
            offset: As for `query`.
        """
        self._check_rows(values, keys)
        self._check_keys(keys, offset)
        given = keys.to(self.device)
        distinct, _, local = compact(given[:0], given)
        last = torch.full((distinct.numel(),), -1, dtype=torch.int64, device=self.device)
        last.scatter_reduce_(0, local.long(), torch.arange(given.numel(), device=self.device), "amax")
        self._store(distinct, values.to(self.device)[last], offset, None)

    def clear(self) -> None:
        """Forget all rows; the statistics stay."""
        with self._lock.acquire():
            self._version += 1
            clear_sets(self._sets)

    @property
    def max_size_in_bytes(self) -> int:
        """What the cache takes in the device's memory: the rows, and what it remembers of them."""
        return self._rows.nbytes + self._sets.keys.nbytes + self._sets.uses.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the shape, not the rows."""
        return type(self), self._arguments

    def _look_up(self, keys: torch.Tensor, offset: int) -> LookedUp:
        check_vector("keys", keys)
        given = keys.to(self.device)
        wanted = given.long() + offset
        values = buffers.empty((given.numel(), *self._rows.shape[1:]), self._rows.dtype, self.device)
        targets = torch.arange(given.numel(), device=self.device)
        with self._lock.acquire():
            self._request += 1
            version, request = self._version, self._request
            slots = find_in_sets(self._sets, wanted, request)
            missing = slots < 0
            copy_rows(
                self._rows, slots.clamp(min=0), values, targets.masked_fill(missing, -1), distinct=True
            )  # fmt: skip
        # Together, for each alone would wait for the device.
        before = missing.cumsum(0)
        count, least = torch.stack([before[-1], wanted.min()]).tolist() if wanted.numel() else (0, 0)
        if least < 0:
            raise out_of_range(least - offset, offset)
        index = torch.searchsorted(before, torch.arange(1, count + 1, device=self.device))
        return LookedUp(version, request, values, index, given[index])

    def _distinct(self, found: LookedUp) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the missing keys, each once, in order of first appearance; and each one's position among those."""
        if found.missing_keys.numel() == 0:
            return found.missing_keys, found.missing_index
        distinct, _, local = compact(found.missing_keys[:0], found.missing_keys)
        return distinct, local.long()

    def _count(self, asked: int, missing: int) -> None:
        with self._lock.lock:
            self._misses += missing
            self._hits += asked - missing

    def _store(self, keys: torch.Tensor, rows: torch.Tensor, offset: int, found: LookedUp | None) -> None:
        """Keep rows, unless others were put in since they were looked up: what was read may be out of date."""
        wanted, sources = keys.long() + offset, torch.arange(keys.numel(), device=self.device)
        with self._lock.acquire():
            if found is None:
                self._version += 1
                self._request += 1
            elif found.version != self._version:
                return
            slots = replace_in_sets(self._sets, wanted, self._request if found is None else found.request)
            copy_rows(rows, sources, self._rows, slots, distinct=True)
