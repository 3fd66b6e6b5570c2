"""A cache in front of features that are slow to read."""

from collections.abc import Generator, Hashable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar, overload

import torch

from graphfeed.ops import is_gpu, on_gpu
from graphfeed.ops.arguments import as_ids, as_tensor, check_count, check_ids, check_vector, checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows import gather_unchecked
from graphfeed.storage.features.check_rows import check_constant, check_feature_rows
from graphfeed.storage.features.encoded_feature import EncodedFeature, is_encoded, stored_rows
from graphfeed.storage.features.feature import (
    DeferredRead,
    Feature,
    ReadsAhead,
    RemoteFeature,
    TorchBasedFeature,
    row_type,
)
from graphfeed.storage.features.feature_cache import CPUFeatureCache
from graphfeed.storage.features.row_cache import RowCache, bytes_of
from graphfeed.storage.memory.cache_use import Cache
from graphfeed.storage.memory.staging import Wait, do_nothing, send_rows

Name = TypeVar("Name", bound=Hashable)
Cached = TypeVar("Cached", bound="CachedFeature")


class CachedFeature(Feature):
    """A feature with a cache of rows that were read before. Reads are bit-identical to those of the feature alone."""

    plain_read = True
    cache_type: ClassVar[type[RowCache]]

    @checked
    def __init__(self, fallback_feature: Feature, cache: RowCache | Any, offset: int = 0) -> None:
        # Any thread may read. Only `update` modifies rows: the cache does not notice other changes.
        self._fallback_feature, self._cache = check_constant(fallback_feature), cache
        # Added to the ids to get the cache's keys: several features may share a cache, each with its own offset.
        self._offset = offset
        self._dtype = row_type(fallback_feature)
        self._max_bytes = bytes_of(cache, self.cache_type)

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, or if None, all rows of the fallback feature."""
        if ids is None:
            return self._fallback_feature.read()
        rows = self._cache.query_and_replace(
            self._checked(ids), lambda missing: self._fallback_feature.read(self._for_fallback(missing)), self._offset
        )
        return self._shaped(rows)

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield the fallback's stages of reading missing rows. Waiting for the last one completes and keeps rows."""
        # Look up first, so that the fallback reads only missing rows.
        finish, missing = self._cache.start_query(self._checked(ids), self._offset)
        missing = self._for_fallback(missing)
        stages = self._fallback_feature.read_async_num_stages(missing.device)
        pending = self._fallback_feature.read_async(missing)
        for _ in range(stages - 1):
            yield next(pending)
        last = next(pending)
        yield DeferredRead(lambda: self._shaped(finish(last.wait())))

    def read_async_num_stages(self, ids_device: torch.device) -> int:  # noqa: ARG002
        """Return the number of the fallback's stages: the first one also looks up rows, the last one stores them."""
        # The missing ids will be on the device of the cache.
        ids = self._for_fallback(torch.empty(0, device=self._cache.device))
        return self._fallback_feature.read_async_num_stages(ids.device)

    def size(self) -> torch.Size:
        return self._fallback_feature.size()

    def count(self) -> int:
        return self._fallback_feature.count()

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Overwrite rows of the fallback feature and keep them in the cache.

        Without `ids`, all rows are overwritten and the cache is emptied, including the rows of features that share it.
        If the new rows have another shape, dtype or number, as in layer-wise inference, the feature gets a separate new
        cache, whose statistics start from zero; the old one is freed when all features have left it. If
        `cpu_cached_feature` or `gpu_cached_feature` created a shared cache, each feature gets a share of its bytes in
        proportion to its rows; if you created it by its class, each gets all of them. No other thread may read in the
        meantime. If there is no memory for the new cache, that is an error, and the new rows are read without a cache.

        If the fallback's rows can't be overwritten because they are in a file, `value` itself becomes the fallback.

        Raises:
            NotImplementedError: Some rows of a file.
            ValueError: Some rows of another shape or dtype than the others; all rows, of fewer than two dimensions.
        """
        if ids is None:
            self._replace_all(check_feature_rows(value))
            return
        value, ids = as_tensor("value", value), as_ids("ids", ids)
        if value.shape[1:] != self.size() or value.dtype != self._dtype:
            raise ValueError(
                f"rows of value must be {self._dtype} of shape {tuple(self.size())} like those of the cache, but are "
                f"{value.dtype} of shape {tuple(value.shape[1:])}"
            )
        self._fallback_feature.update(value, ids)
        self._cache.replace(ids.to(self._cache.device), value.to(self._cache.device), offset=self._offset)

    def metadata(self) -> dict[str, Any]:
        return self._fallback_feature.metadata()

    def is_pinned(self) -> bool:
        """Return whether both the cache and the fallback feature are in page-locked memory."""
        return self._fallback_feature.is_pinned() and self._cache.is_pinned()

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the cache, and those of the fallback feature."""
        return [("", self._cache), *self._fallback_feature.list_caches()]

    def is_constant(self) -> bool:
        """Return whether the fallback feature's rows never change."""
        return self._fallback_feature.is_constant()

    def slow_source(self) -> ReadsAhead | None:
        """Return the slow source beneath the cache."""
        return self._fallback_feature.slow_source()

    @property
    def cache_size_in_bytes(self) -> int:
        """Memory of the full cache, including its bookkeeping and the rows of all features that share it."""
        return self._cache.max_size_in_bytes

    @property
    def miss_rate(self) -> float:
        """Share of queried rows that were missing, over all features that share the cache."""
        return self._cache.miss_rate

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fallback_feature!r}, {self.cache_size_in_bytes} bytes)"

    def _replace_all(self, rows: torch.Tensor) -> None:
        same_kind = (rows.shape[0], rows.shape[1:], rows.dtype) == (self.count(), self.size(), self._dtype)
        # Empty for now: it checks the options before anything is modified.
        empty = None if same_kind else self._cache.like(0, rows.shape[1:], rows.dtype, 0)
        try:
            self._fallback_feature.update(rows)
        except NotImplementedError:
            # The fallback is in a file, so the rows themselves replace it.
            self._fallback_feature = TorchBasedFeature(rows)
        if empty is None:
            self._cache.clear()
            return
        # The old rows are freed first, because memory may not suffice for both caches. If it doesn't suffice for the
        # new one either, all fields already fit the new rows.
        self._cache, self._offset, self._dtype = empty, 0, rows.dtype
        self._cache = empty.like(self._max_bytes, rows.shape[1:], rows.dtype, rows.shape[0])

    def _checked(self, ids: torch.Tensor) -> torch.Tensor:
        """Check ids: beyond this feature's rows, their keys could belong to another feature that shares the cache."""
        ids = as_ids("index", ids)
        check_vector("index", ids)
        check_ids("index", ids, self.count(), IndexError)
        return ids.to(self._cache.device)

    def _for_fallback(self, ids: torch.Tensor) -> torch.Tensor:
        # A cache on a GPU may pass them to its fallback there.
        return ids.cpu()

    def _shaped(self, rows: torch.Tensor) -> torch.Tensor:
        # Features that share a cache have rows of the same number of bytes, but perhaps of another shape and dtype.
        if rows.dtype != self._dtype and rows.numel():
            return rows.reshape(-1).view(torch.uint8).view(self._dtype).reshape(rows.shape[0], *self.size())
        return rows.to(self._dtype).reshape(rows.shape[0], *self.size())


class CPUCachedFeature(CachedFeature):
    """A feature with a cache in memory, created by `cpu_cached_feature`.

    With ids on a GPU, rows are returned there. They pass through page-locked memory of a fixed size: while some are
    copied on the current stream, the next ones are looked up and read. Each such part of 4 MiB counts as a separate
    query in `miss_rate`, and a row that two consecutive parts lack is read twice.

    As long as the fallback feature finds its rows in the system's page cache, they are read past this cache, which
    costs less than looking them up. They don't count in `miss_rate`; the `kind` of the cache, which `explain()` shows,
    has their number. For a `graphfeed.distributed.PartitionedFeature`, only rows of other machines are kept and
    counted, and a read requests all rows that it lacks at once, also with ids on a GPU.

    Example:
        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> feature = cpu_cached_feature(TorchBasedFeature(torch.eye(3)), max_cache_size_in_bytes=1000)
        >>> feature.read(torch.tensor([1, 2, 1])).argmax(1).tolist(), feature.miss_rate
        ([1, 2, 1], 0.6666666666666666)
    """

    plain_read = True
    cache_type = CPUFeatureCache
    _cache: CPUFeatureCache

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, on their device, or if None, all rows of the fallback feature."""
        if ids is not None and self._bypass(ids):
            return self._fallback_feature.read(ids)
        if isinstance(ids, torch.Tensor) and on_gpu(ids):
            return self._read_on_gpu(ids)
        if ids is not None and isinstance(self._fallback_feature, RemoteFeature):
            return self._submit_read(self._fallback_feature, ids).wait()
        return super().read(ids)

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield like other caches; only once for rows that go to a GPU, which are read when they are waited for."""
        if on_gpu(as_ids("index", ids)):
            yield DeferredRead(partial(self.read, ids))
        elif self._bypass(ids):
            yield from self._fallback_feature.read_async(ids)
        elif isinstance(self._fallback_feature, RemoteFeature):
            yield self._submit_read(self._fallback_feature, ids)
        else:
            yield from super().read_async(ids)

    def read_async_num_stages(self, ids_device: torch.device) -> int:
        """Return the number of the fallback's stages, or 1 for ids on a GPU."""
        return 1 if is_gpu(ids_device) else super().read_async_num_stages(ids_device)

    def delivers_to_gpu(self) -> bool:
        """Return True: rows pass through page-locked memory."""
        return True

    def may_read_in_threads(self) -> bool:
        """Return whether all threads can read the fallback feature as fast as the main thread."""
        return self._fallback_feature.may_read_in_threads()

    def _bypass(self, ids: torch.Tensor) -> bool:
        """Return whether the system has the file in memory. If so, count the rows, which are read past the cache."""
        # Such reads are 9 to 27 times as fast as those through a cache of an eighth of the rows.
        if not self._fallback_feature.is_in_page_cache():
            return False
        self._cache.count_passed(len(ids))
        return True

    def _submit_read(self, feature: RemoteFeature, ids: torch.Tensor) -> DeferredRead:
        """Request the remote rows that the cache lacks. Waiting for the result reads the local ones."""
        here = self._checked(ids)
        remote, write_local = feature.split_local(here)
        # Local rows are as fast as the cache, so it keeps only remote ones.
        out = buffers.empty((here.numel(), *self.size()), self._dtype)
        finish, missing = self._cache.start_query(gather_unchecked(here, remote), self._offset, out, remote)
        # Sent before the caller does anything else, such as requesting other features.
        (pending,) = feature.read_async(missing)

        def read() -> torch.Tensor:
            # While the remote rows are in flight.
            write_local(out)
            finish(pending.wait())
            return out

        return DeferredRead(read)

    def _read_on_gpu(self, ids: torch.Tensor) -> torch.Tensor:
        here = self._checked(ids.cpu())
        # Read at once, because each read of remote rows waits for other processes.
        at_once = self.read(here) if isinstance(self._fallback_feature, RemoteFeature) else None

        def start(begin: int, end: int, rows: torch.Tensor) -> Wait:
            if at_once is not None:
                rows.copy_(at_once[begin:end])
                return do_nothing
            finish, missing = self._cache.start_query(here[begin:end], self._offset, rows)
            if not missing.numel():
                return do_nothing
            stages = self._fallback_feature.read_async(missing)
            # Started, but not waited for: the previous block is copied in the meantime.
            first = next(stages)

            def wait() -> None:
                *_, last = first, *stages
                finish(last.wait())

            return wait

        return send_rows(start, (len(here), *self.size()), self._dtype, ids.device)


@checked
def wrap_with_cached_feature(
    cached_feature_type: type[Cached],
    fallback_features: Feature | Mapping[Any, Feature],
    max_cache_size_in_bytes: int,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Put one cache in front of a feature, or of several features. See `cpu_cached_feature`.

    A cache of an `EncodedFeature` keeps its codes; the result is an `EncodedFeature` with the cache as `stored`.

    Args:
        cached_feature_type: The class to wrap them in. Its `cache_type` is the class of the cache.
        fallback_features: One feature, or a dict of features whose rows have the same number of bytes.
        max_cache_size_in_bytes: Bound for the memory of the cache, including its bookkeeping.
        args, kwargs: Further arguments for the cache's `within`, after the dtype: policy and pin_memory.

    Raises:
        ValueError: There is no feature, rows have different sizes, or the number of bytes is negative.
    """
    check_count("max_cache_size_in_bytes", max_cache_size_in_bytes, 0)
    if isinstance(fallback_features, Feature):
        alone = {None: fallback_features}
        return wrap_with_cached_feature(cached_feature_type, alone, max_cache_size_in_bytes, *args, **kwargs)[None]
    stored = {name: stored_rows(feature) for name, feature in fallback_features.items()}
    rows = {name: torch.empty(own.size(), dtype=row_type(own), device="cpu") for name, own in stored.items()}
    sizes = {name: row.nbytes for name, row in rows.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(
            f"features that share a cache must have rows of the same number of bytes, but have {sizes}; wrap each alone"
        )
    row = next(iter(rows.values()))
    # More slots than rows would stay empty.
    kwargs["most_rows"] = total = sum(feature.count() for feature in fallback_features.values())
    cache = cached_feature_type.cache_type.within(max_cache_size_in_bytes, row.shape, row.dtype, *args, **kwargs)
    wrapped: dict[Any, Any] = {}
    offset = 0
    for name, feature in fallback_features.items():
        cached = cached_feature_type(stored[name], cache, offset)
        # Its share, if it gets a separate cache in an update of all rows.
        cached._max_bytes = max_cache_size_in_bytes * feature.count() // max(1, total)
        offset += feature.count()
        wrapped[name] = feature.with_stored(cached) if is_encoded(feature) else cached
    return wrapped


@overload
def cpu_cached_feature(  # type: ignore[overload-overlap]
    fallback_features: EncodedFeature, max_cache_size_in_bytes: int, policy: str | None = None, pin_memory: bool = False
) -> EncodedFeature: ...


@overload
def cpu_cached_feature(
    fallback_features: Feature, max_cache_size_in_bytes: int, policy: str | None = None, pin_memory: bool = False
) -> CPUCachedFeature: ...


@overload
def cpu_cached_feature(  # type: ignore[overload-overlap]
    fallback_features: Mapping[Name, EncodedFeature],
    max_cache_size_in_bytes: int,
    policy: str | None = None,
    pin_memory: bool = False,
) -> dict[Name, EncodedFeature]: ...


@overload
def cpu_cached_feature(
    fallback_features: Mapping[Name, Feature],
    max_cache_size_in_bytes: int,
    policy: str | None = None,
    pin_memory: bool = False,
) -> dict[Name, CPUCachedFeature]: ...


@checked
def cpu_cached_feature(
    fallback_features: Feature | Mapping[Any, Feature],
    max_cache_size_in_bytes: int,
    policy: str | None = None,
    pin_memory: bool = False,
) -> Any:
    """Put a cache in memory in front of features on disk. If they are encoded, it keeps codes.

    Args:
        fallback_features: One feature, or a dict of features that share a cache, with rows of the same number of bytes.
        max_cache_size_in_bytes: Bound for the memory of the whole cache: the rows and 25 to 33 bytes of bookkeeping per
            row (GraphBolt counts only the rows, and rounds their number up), without returned mini-batches and the
            temporary memory of a read. A cache that is too small for a row keeps none.
        policy: Decides which rows stay: "sieve", the default. GraphBolt's "s3-fifo", "lru" and "clock" mean SIEVE, too.
        pin_memory: Whether to keep the rows in page-locked memory.

    Raises:
        ValueError: There is no feature, rows have different sizes, or the number of bytes is negative.

    Example:
        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> features = {"paper": TorchBasedFeature(torch.eye(2)), "author": TorchBasedFeature(torch.ones(1, 2))}
        >>> cpu_cached_feature(features, 1000)["author"].read(torch.tensor([0])).tolist()
        [[1.0, 1.0]]
    """
    return wrap_with_cached_feature(
        CPUCachedFeature, fallback_features, max_cache_size_in_bytes, policy=policy, pin_memory=pin_memory
    )
