"""A cache in memory for feature rows that are slow to read."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Self

import torch

from graphfeed.ops.arguments import check_count, check_tensors, checked, ignores
from graphfeed.ops.memory import buffers, empty_locked
from graphfeed.ops.process import current_limits, renew_in_child
from graphfeed.ops.rows import (
    MOST_SLOTS,
    clear_policy,
    copy_rows,
    find_keys,
    gather_unchecked,
    new_policy,
    policy_bytes,
    replace_keys,
)
from graphfeed.ops.structure import compact
from graphfeed.storage.features.row_cache import CacheLookup, Reader, RowCache
from graphfeed.storage.memory.stream_order import StreamOrderedLock


class CPUFeatureCache(RowCache):
    """A cache of feature rows in CPU memory. A policy decides which rows stay.

    The cache is thread-safe: one thread at a time looks up or stores rows, and none holds the lock while it fetches
    them. A query never waits for free memory: rows that don't fit are returned without being kept. The cache pickles as
    an empty cache of the same size, and a forked process starts with an empty one.

    It takes `max_size_in_bytes` of memory: the rows, whose pages are touched as they fill, and 25 to 33 bytes per row
    for the policy. In addition, each query has the rows that it returns and some tens of bytes per key,
    `query_and_replace` has 4 MiB of rows being read, and `start_query` has all missing rows.

    Args:
        cache_shape: The number of rows and the shape of each: (rows, ...). For a number of bytes, use `within`.
        dtype: The dtype of the rows.
        policy: "sieve", the default. GraphBolt's "s3-fifo", "lru" and "clock" are accepted, but SIEVE is used.
        pin_memory: Whether to keep the rows in page-locked memory.

    Example:
        >>> cache, table = CPUFeatureCache((2, 1), torch.float32), torch.tensor([[0.0], [10.0], [20.0]])
        >>> cache.query_and_replace(torch.tensor([2, 0]), lambda keys: table[keys]).tolist()
        [[20.0], [0.0]]
        >>> cache.query(torch.tensor([1, 2]))[2].tolist()
        [1]
    """

    slots_are_distinct = False

    @ignores("num_parts")
    @checked
    def __init__(
        self,
        cache_shape: tuple[int, ...] | torch.Size,
        dtype: torch.dtype,
        policy: str | None = None,
        *,
        pin_memory: bool = False,
    ) -> None:
        for size in cache_shape:
            check_count("cache_shape", size, 0)
        if not cache_shape:
            raise ValueError("cache_shape must begin with the number of rows, but is empty")
        if pin_memory and not torch.cuda.is_available():
            raise ValueError("pin_memory is True, but torch finds no CUDA device to pin memory for; leave it out")
        shape = tuple(cache_shape)
        self._policy = new_policy(policy or "sieve", shape[0])
        if pin_memory:
            rows = empty_locked(shape, dtype)
        else:
            # Private memory, because a forked process has its own cache.
            rows = buffers.empty_long_lived(shape, dtype, buffers.CPU, private=True)
        super().__init__(rows, (), policy_bytes(shape[0]), (shape, dtype, policy), pin_memory=pin_memory)
        renew_in_child(self, CPUFeatureCache._forget)

    def _forget(self) -> None:
        # Another thread of the parent may have left it half-modified.
        if self._options["pin_memory"]:  # page-locked rows belong to the parent, which still uses them
            self._rows = buffers.empty_long_lived(tuple(self._rows.shape), self._rows.dtype, buffers.CPU, private=True)
        self._lock = StreamOrderedLock(self._rows)
        self.clear()

    @classmethod
    @ignores("num_parts")
    def within(
        cls,
        max_size_in_bytes: int,
        row_shape: Sequence[int],
        dtype: torch.dtype,
        policy: str | None = None,
        *,
        pin_memory: bool = False,
        most_rows: int | None = None,
    ) -> Self:
        """Return a cache of at most `most_rows` rows that fits into a number of bytes, including its bookkeeping.

        Args:
            max_size_in_bytes: Bound for the cache's own `max_size_in_bytes`. If not even one row fits, the cache keeps
                nothing, and takes the hundred bytes of an empty cache.
            row_shape, dtype, policy, pin_memory: The shape of a row; the others are as for the class.
            most_rows: The total number of rows that can be kept; None if it is unknown.

        Example:
            >>> CPUFeatureCache.within(1_000_000, (128,), torch.float32).max_size_in_bytes
            999819
        """
        check_count("max_size_in_bytes", max_size_in_bytes, 0)
        row_bytes = prod(row_shape) * dtype.itemsize
        most = min(max_size_in_bytes // max(1, row_bytes), MOST_SLOTS)
        # Bisect, because the policy's bookkeeping grows in steps.
        above = bisect_right(
            range(most + 1), max_size_in_bytes, key=lambda count: count * row_bytes + policy_bytes(count)
        )
        rows = max(0, above - 1)
        rows = rows if most_rows is None else min(rows, most_rows)
        return cls((rows, *row_shape), dtype, policy, pin_memory=pin_memory)

    @checked
    def query(
        self, keys: torch.Tensor, offset: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the rows that the cache has for some keys.

        Args:
            keys: int32 or int64, 1-D, in any order; keys may repeat.
            offset: Added to each key, to separate features that share a cache. The sums must be 0 or more.

        Returns:
            One row per key, not filled in where it is missing; the positions of the missing rows; their keys; and the
            bounds of each part among those, which are `[0, len(missing_keys)]`.
        """
        looked_up = self._look_up(keys, offset)
        # All missing keys are one part, whereas GraphBolt's caches have several.
        bounds = torch.tensor([0, looked_up.missing_keys.numel()], device="cpu")
        return looked_up.values, looked_up.missing_index, looked_up.missing_keys, bounds

    @checked
    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read.

        Args:
            keys, offset: As for `query`.
            reader_fn: Called with the distinct missing keys, in order of first appearance. If their rows take much
                memory, called several times with a part of the keys, in ascending order; never if no key is missing.
        """
        looked_up = self._look_up(keys, offset)
        first = positions = first_positions(looked_up)
        missing = looked_up.distinct
        most = max(1, current_limits().cache_read_bytes // max(1, self._row_bytes))
        # Equal parts, because a shorter last part would leave a buffer of another size idle after each query.
        step = max(1, -(-len(missing) // max(1, -(-len(missing) // most))))
        if step < len(missing):
            # Sort: in order of first appearance, each part would read pages of the whole file, many of them again.
            missing, order = missing.sort()
            positions = first[order]
        for start in range(0, len(missing), step):
            part = slice(start, start + step)
            self._fill_in(looked_up, missing[part], positions[part], reader_fn(missing[part]), offset)
        return repeat_rows(looked_up, first)

    def start_query(
        self,
        keys: torch.Tensor,
        offset: int = 0,
        into: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> tuple[Reader, torch.Tensor]:
        """Look up some keys: the first half of `query_and_replace`.

        Args:
            keys, offset: As for `query`.
            into: Memory for the rows, one per key; contiguous. The default is new memory.
            positions: int64: the row of `into` for each key; `into` may then have other rows as well.

        Returns:
            The second half, a function of the missing rows; and the distinct missing keys.
        """
        looked_up = self._look_up(keys, offset, into, positions)
        return partial(self._finish, looked_up, offset), looked_up.distinct

    @ignores("offsets")
    @checked
    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key, and overwrite existing ones. For equal keys, the last row is kept.

        Args:
            keys, offset: As for `query`.
            values: One row per key.
        """
        check_tensors(keys=keys, values=values)
        self._check_rows(values, keys)
        self._check_keys(keys, offset)
        self._store(keys, values, offset, None)

    @property
    def kind(self) -> str:
        """Description of the memory, the policy, and the number of rows that were read past the cache."""
        passed = f"; {self._passed:,} rows were in the system's page cache" if self._passed else ""
        return f"rows in {'pinned ' if self.is_pinned() else ''}memory, sieve{passed}"

    def _forget_keys(self) -> None:
        clear_policy(self._policy)

    def _assign_slots(self, keys: torch.Tensor, request: int) -> torch.Tensor:  # noqa: ARG002
        return replace_keys(self._policy, keys)

    def _look_up(
        self,
        keys: torch.Tensor,
        offset: int,
        into: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> CacheLookup:
        self._check_keys(keys, offset)
        wanted = keys.long() + offset
        # Allocate before the lock is acquired, because this doesn't need it.
        if into is None:
            values = buffers.empty((keys.numel(), *self._rows.shape[1:]), self._rows.dtype)
        else:
            if positions is None:  # otherwise, copying checks them
                self._check_rows(into, keys)
            values = into
        with self._lock.acquire():
            # Copy the rows under the lock, because another thread may put others into their slots.
            version = self._version
            there = find_keys(self._policy, wanted)
            hits = there.hit_index if positions is None else gather_unchecked(positions, there.hit_index)
            copy_rows(self._rows, there.hit_slots, values, hits)
        missing_keys = keys[there.missing_index]
        missing = there.missing_index if positions is None else gather_unchecked(positions, there.missing_index)
        # A key that occurs several times is read once.
        distinct, _, local = compact(missing_keys[:0], missing_keys)
        self._count(keys.numel(), distinct.numel())
        return CacheLookup(version, 0, values, missing, missing_keys, distinct, local)

    def _finish(self, looked_up: CacheLookup, offset: int, rows: torch.Tensor) -> torch.Tensor:
        first = first_positions(looked_up)
        self._fill_in(looked_up, looked_up.distinct, first, rows, offset)
        return repeat_rows(looked_up, first)

    def _fill_in(
        self, looked_up: CacheLookup, keys: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, offset: int
    ) -> None:
        """Put the rows of some missing keys at the first position of each key, and keep them."""
        self._check_rows(rows, keys)
        copy_rows(rows, torch.arange(keys.numel(), device="cpu"), looked_up.values, positions)
        self._store(keys, rows, offset, looked_up)


@checked
def bytes_to_number_of_items(cache_capacity_in_bytes: int, single_item: Any) -> int:
    """Return the number of items that fit into a number of bytes, rounded up.

    Example:
        >>> bytes_to_number_of_items(9, torch.zeros(2))
        2
    """
    check_tensors(single_item=single_item)
    if cache_capacity_in_bytes < 0:
        raise ValueError(f"cache_capacity_in_bytes must be 0 or more, but is {cache_capacity_in_bytes}")
    return -(-cache_capacity_in_bytes // max(1, int(single_item.nbytes)))


def first_positions(looked_up: CacheLookup) -> torch.Tensor:
    """Return the first position of each distinct missing key."""
    if looked_up.distinct.numel() == looked_up.missing_index.numel():
        return looked_up.missing_index
    positions = torch.empty(looked_up.distinct.numel(), dtype=torch.int64, device="cpu")
    # Written from last to first, so that the first position remains.
    positions.numpy()[looked_up.local.numpy()[::-1]] = looked_up.missing_index.numpy()[::-1]
    return positions


def repeat_rows(looked_up: CacheLookup, first: torch.Tensor) -> torch.Tensor:
    # For duplicate keys, only the first position was filled in.
    if looked_up.distinct.numel() < looked_up.missing_index.numel():
        copy_rows(looked_up.values, first[looked_up.local.long()], looked_up.values, looked_up.missing_index)
    return looked_up.values
