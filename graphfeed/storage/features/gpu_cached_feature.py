"""A cache in a GPU's memory in front of features that are stored elsewhere."""

import copy
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Self, overload

import torch

from graphfeed.ops import kernels, on_gpu
from graphfeed.ops.arguments import check_count, check_vector, checked, mark_below
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows import BYTES_PER_PLACE, clear_sets, copy_rows, find_in_sets, new_sets, replace_in_sets
from graphfeed.ops.structure import compact, compact_marked
from graphfeed.storage.features.cached_feature import CachedFeature, Name, wrap_with_cached_feature
from graphfeed.storage.features.encoded_feature import EncodedFeature
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.features.row_cache import CacheLookup, Reader, RowCache, out_of_range


class GPUFeatureCache(RowCache):
    """A cache of feature rows in GPU memory, in sets of at most 32; in each set, the most recently used rows stay.

    The hash of a key selects its set. A request never evicts rows that it used or stored itself; rows without a free
    slot are returned without being kept. Which keys are kept depends only on the requests and their order.

    The cache is thread-safe, and each thread may use its own CUDA stream. One thread at a time looks up or stores rows,
    and its stream waits for the stream of the previous thread. No thread holds the lock while it waits for the device,
    as each query does to get the number of missing keys, or while it fetches rows. The cache pickles as an empty one.

    It takes `max_size_in_bytes` of the device's memory: the rows, and 16 bytes per row. Each query also has the rows
    that it returns, a second copy of the missing ones, and some hundred bytes per key.

    Args:
        cache_shape: The number of rows and the shape of each: (rows, ...). A few rows may be left out, because all sets
            have the same size. For a number of bytes, use `within`.
        dtype, device: The dtype and the device of the rows.

    Raises:
        ImportError: CuPy, which the kernels need, is not installed.
        RuntimeError: torch finds no CUDA device.

    Example:
        On a CPU, whose kernels are equivalent:

        >>> cache, table = GPUFeatureCache((2, 1), torch.float32, "cpu"), torch.tensor([[0.0], [10.0], [20.0]])
        >>> cache.query_and_replace(torch.tensor([2, 0]), lambda keys: table[keys]).tolist()
        [[20.0], [0.0]]
        >>> cache.query(torch.tensor([1, 2]))[2].tolist()
        [1]
    """

    slots_are_distinct = True

    @checked
    def __init__(
        self, cache_shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, device: torch.device | str = "cuda"
    ) -> None:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"a cache on {device} needs a CUDA device, and torch finds none; keep rows in memory with "
                "cpu_cached_feature instead"
            )
        self._sets = new_sets(cache_shape[0], device)
        # Raises now, rather than at the first mini-batch, if the device has no kernels.
        kernels("rows.cache_sets", self._sets.keys)
        rows = torch.empty((self._sets.keys.numel(), *cache_shape[1:]), dtype=dtype, device=device)
        places = (self._sets.keys, self._sets.uses)
        super().__init__(rows, places, sum(part.nbytes for part in places), (tuple(cache_shape), dtype, device))

    @classmethod
    def within(
        cls,
        max_size_in_bytes: int,
        row_shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str = "cuda",
        *,
        most_rows: int | None = None,
    ) -> Self:
        """Return a cache of as many rows as fit into a number of bytes, including its bookkeeping.

        Args:
            max_size_in_bytes: Bound for the cache's own `max_size_in_bytes`; if not even one row fits, nothing is kept.
            row_shape, dtype, device: The shape of a row; the others are as for the class.
            most_rows: The total number of rows that can be kept; None if it is unknown. The cache has at most twice as
                many slots, so that hardly any set lacks one for its keys.

        Example:
            >>> GPUFeatureCache.within(1_000_000, (128,), torch.float32, device="cpu").max_size_in_bytes
            996864
        """
        check_count("max_size_in_bytes", max_size_in_bytes, 0)
        # With twice the slots, hardly any set lacks one for its keys.
        rows = max_size_in_bytes // (prod(row_shape) * dtype.itemsize + BYTES_PER_PLACE)
        rows = rows if most_rows is None else min(rows, 2 * most_rows)
        return cls((rows, *row_shape), dtype, device)

    def query(self, keys: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the rows that the cache has for some keys, like `CPUFeatureCache.query`.

        Args:
            keys, offset: As for `CPUFeatureCache.query`.

        Returns:
            One row per key, not filled in where it is missing; the positions of the missing rows; and their keys.
        """
        looked_up = self._look_up(keys, offset)
        return looked_up.values, looked_up.missing_index, looked_up.missing_keys

    def query_and_replace(self, keys: torch.Tensor, reader_fn: Reader, offset: int = 0) -> torch.Tensor:
        """Return the rows of some keys, and keep those that had to be read.

        Args:
            keys, offset: As for `query`.
            reader_fn: Called once with the distinct missing keys, in order of first appearance; not called if no key is
                missing. The rows that it returns may be on any device.
        """
        finish, missing = self.start_query(keys, offset)
        return finish(reader_fn(missing) if missing.numel() else self._rows[:0])

    def replace(self, keys: torch.Tensor, values: torch.Tensor, *, offset: int = 0) -> None:
        """Keep rows by key, and overwrite existing ones. For equal keys, the last row is kept.

        Args:
            keys, offset: As for `CPUFeatureCache.query`.
            values: One row per key.
        """
        self._check_rows(values, keys)
        self._check_keys(keys, offset)
        given = keys.to(self.device)
        distinct, _, local = compact(given[:0], given)
        # The last position of each key, whose row is kept.
        last = torch.full((distinct.numel(),), -1, dtype=torch.int64, device=self.device)
        last.scatter_reduce_(0, local.long(), torch.arange(given.numel(), device=self.device), "amax")
        self._store(distinct, values.to(self.device)[last], offset, None)

    @property
    def kind(self) -> str:
        """Description of the cache's memory and policy."""
        return f"rows on {self.device}, lru of each set"

    def _forget_keys(self) -> None:
        clear_sets(self._sets)

    def _assign_slots(self, keys: torch.Tensor, request: int) -> torch.Tensor:
        return replace_in_sets(self._sets, keys, request)

    def _look_up(self, keys: torch.Tensor, offset: int) -> CacheLookup:
        check_vector("keys", keys)
        given = keys.to(self.device)
        if given.is_cpu:
            self._check_keys(given, offset)
        wanted = given.long() + offset
        values = buffers.empty((given.numel(), *self._rows.shape[1:]), self._rows.dtype, self.device)
        # Target of each key's row; -1 for missing ones.
        targets = torch.arange(given.numel(), device=self.device)
        with self._lock.acquire():
            # The number keeps a request from evicting rows that it used or stored itself.
            self._request += 1
            version, request = self._version, self._request
            slots = find_in_sets(self._sets, wanted, request)
            missing = slots < 0
            copy_rows(self._rows, slots, values, targets.masked_fill(missing, -1), distinct=True)
        # The only synchronization with the GPU, to get the number of missing rows.
        places, distinct, local, least = compact_marked(given, missing)
        if least + offset < 0:  # checked here on a GPU, to synchronize only once
            raise out_of_range(least, offset)
        self._count(given.numel(), distinct.numel())
        return CacheLookup(version, request, values, places, given[places], distinct, local)

    def _finish(self, looked_up: CacheLookup, offset: int, rows: torch.Tensor) -> torch.Tensor:
        self._check_rows(rows, looked_up.distinct)
        if looked_up.distinct.numel():
            here = rows.to(self.device).contiguous()
            copy_rows(here, looked_up.local.long(), looked_up.values, looked_up.missing_index, distinct=True)
            self._store(looked_up.distinct, here, offset, looked_up)
        return looked_up.values


class GPUCachedFeature(CachedFeature):
    """A feature with a cache in a GPU's memory, created by `gpu_cached_feature`.

    Ids may be on the CPU or on the GPU; rows are returned on the GPU. From a fallback feature in pinned memory, the GPU
    reads missing rows over the bus. A `DiskBasedFeature` and a `CPUCachedFeature` send them through page-locked memory.
    Any other fallback reads them on the CPU, and they are copied to the GPU. `read()` without ids returns the
    fallback's rows on their own device.

    Example:
        On a CPU, whose kernels are equivalent:

        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> feature = GPUCachedFeature(TorchBasedFeature(torch.eye(3)), GPUFeatureCache((2, 3), torch.float32, "cpu"))
        >>> feature.read(torch.tensor([1, 2, 1])).argmax(1).tolist(), feature.miss_rate
        ([1, 2, 1], 0.6666666666666666)
    """

    cache_type = GPUFeatureCache

    def is_pinned(self) -> bool:
        """Return whether the fallback feature is in page-locked memory."""
        return self._fallback_feature.is_pinned()

    def in_place_of_source(self, rows: Feature) -> Feature:
        """Return a feature with the same cache in front of rows that were read ahead."""
        # The cache is shared: both have the same rows.
        other = copy.copy(self)
        other._fallback_feature = rows
        return other

    def _for_fallback(self, ids: torch.Tensor) -> torch.Tensor:
        # Only some features accept ids on a GPU; others get them on the CPU.
        if not self._fallback_feature.delivers_to_gpu():
            return ids.cpu()
        if on_gpu(ids):  # they were checked before, so checking them again would only synchronize
            mark_below(ids, self.count())
        return ids


@overload
def gpu_cached_feature(  # type: ignore[overload-overlap]
    fallback_features: EncodedFeature, max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> EncodedFeature: ...


@overload
def gpu_cached_feature(
    fallback_features: Feature, max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> GPUCachedFeature: ...


@overload
def gpu_cached_feature(  # type: ignore[overload-overlap]
    fallback_features: Mapping[Name, EncodedFeature], max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> dict[Name, EncodedFeature]: ...


@overload
def gpu_cached_feature(
    fallback_features: Mapping[Name, Feature], max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> dict[Name, GPUCachedFeature]: ...


@checked
def gpu_cached_feature(
    fallback_features: Feature | Mapping[Any, Feature],
    max_cache_size_in_bytes: int,
    device: torch.device | str = "cuda",
) -> Any:
    """Put a cache in a GPU's memory in front of features. In each set of rows, the most recently used ones stay (LRU).

    Reads are bit-identical to those without the cache. Put `copy_to` before `fetch_feature`, so that ids don't travel
    back and forth. A feature on disk profits from a second cache in memory, by `cpu_cached_feature`, beneath this one.

    Args:
        fallback_features: One feature, or a dict of features that share a cache, with rows of the same number of bytes.
        max_cache_size_in_bytes: Bound for the memory of the whole cache: the rows and 16 bytes of bookkeeping per row
            (GraphBolt counts only the rows), without returned mini-batches and the temporary memory of a read; see
            `GPUFeatureCache`. A cache that is too small for a row keeps none. Memory for more than twice as many rows
            as the features have is not allocated.
        device: The device of the cache.

    Raises:
        ImportError: CuPy, which the kernels need, is not installed.
        RuntimeError: torch finds no CUDA device.
        ValueError: Rows have different sizes, or the number of bytes is negative.

    Example:
        On a CPU, whose kernels are equivalent:

        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> features = {"paper": TorchBasedFeature(torch.eye(2)), "author": TorchBasedFeature(torch.ones(1, 2))}
        >>> gpu_cached_feature(features, 1000, device="cpu")["author"].read(torch.tensor([0])).tolist()
        [[1.0, 1.0]]
    """
    return wrap_with_cached_feature(GPUCachedFeature, fallback_features, max_cache_size_in_bytes, device=device)
