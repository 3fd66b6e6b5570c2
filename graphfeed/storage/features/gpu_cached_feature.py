"""A cache in a GPU's memory in front of features that lie elsewhere."""

import copy
from collections.abc import Mapping
from typing import Any, overload

import torch

from graphfeed.ops import on_gpu
from graphfeed.ops.arguments import checked, trust
from graphfeed.storage.features.cached_feature import CachedFeature, Name, wrap_with_cached_feature
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.features.gpu_feature_cache import GPUFeatureCache


class GPUCachedFeature(CachedFeature):
    """A feature with a cache in a GPU's memory; `gpu_cached_feature` makes one.

    Ids may lie on the CPU or on the GPU; rows are returned on the GPU. From a fallback feature in pinned memory, the
    GPU reads missing rows over the bus. A `DiskBasedFeature` and a `CPUCachedFeature` send them through page-locked
    memory. Any other fallback reads them on the CPU, and they are copied to the GPU. `read()` without ids returns the
    fallback's rows where they lie.

    Example:
        On a CPU, whose kernels do the same:

        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> cache = GPUFeatureCache((2, 3), torch.float32, device="cpu")
        >>> feature = GPUCachedFeature(TorchBasedFeature(torch.eye(3)), cache)
        >>> feature.read(torch.tensor([1, 2, 1])).argmax(1).tolist()
        [1, 2, 1]
        >>> feature.miss_rate
        0.6666666666666666
    """

    cache_type = GPUFeatureCache

    def is_pinned(self) -> bool:
        """Tell whether the fallback feature lies in page-locked memory."""
        return self._fallback_feature.is_pinned()

    def in_place_of_source(self, rows: Feature) -> Feature:
        """Return a feature with the same cache in front of rows that were read ahead."""
        # The cache is shared: both have the same rows.
        other = copy.copy(self)
        other._fallback_feature = rows
        return other

    def _for_fallback(self, ids: torch.Tensor) -> torch.Tensor:
        # Only some features take ids on a GPU; others get them from the CPU.
        if not self._fallback_feature.delivers_to_gpu():
            return ids.cpu()
        if on_gpu(ids):  # they are among ids that were checked, so that nobody waits for the GPU to check them again
            trust(("ids", self.count()), (ids,))
        return ids


@overload
def gpu_cached_feature(
    fallback_features: Feature, max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> GPUCachedFeature: ...


@overload
def gpu_cached_feature(
    fallback_features: Mapping[Name, Feature], max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> dict[Name, GPUCachedFeature]: ...


@checked
def gpu_cached_feature(
    fallback_features: Feature | Mapping[Any, Feature],
    max_cache_size_in_bytes: int,
    device: torch.device | str = "cuda",
) -> GPUCachedFeature | dict[Any, GPUCachedFeature]:
    """Put a cache in a GPU's memory in front of features; of each set in it, the most recently used rows stay (LRU).

    Reads return the same bits as without the cache. Put `copy_to` before `fetch_feature`, so that ids don't travel back
    and forth. The bound counts the rows and 16 bytes of bookkeeping per row; GraphBolt counts the rows alone. Returned
    mini-batches and the temporary memory of a read are not counted; see `GPUFeatureCache`. A feature on disk profits
    from a second cache in memory: `gpu_cached_feature(cpu_cached_feature(feature, ...), ...)`.

    Args:
        fallback_features: One feature, or a dict of features that share one cache. Their rows must have the same number
            of bytes.
        max_cache_size_in_bytes: Bound for the memory of the whole cache. A cache without room for a row keeps none. For
            more than twice as many rows as the features have, no memory is taken.
        device: The device of the cache.

    Raises:
        ImportError: CuPy, which the kernels need, is not installed.
        RuntimeError: torch finds no CUDA device.
        ValueError: Rows have different sizes, or the number of bytes is negative.

    Example:
        On a CPU, whose kernels do the same:

        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> papers, authors = TorchBasedFeature(torch.eye(2)), TorchBasedFeature(torch.ones(1, 2))
        >>> both = gpu_cached_feature({"paper": papers, "author": authors}, 1000, device="cpu")
        >>> both["author"].read(torch.tensor([0])).tolist()
        [[1.0, 1.0]]
    """
    return wrap_with_cached_feature(GPUCachedFeature, fallback_features, max_cache_size_in_bytes, device=device)
