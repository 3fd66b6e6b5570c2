"""Features with a cache in a GPU's memory in front."""

from collections.abc import Mapping
from typing import Any, overload

import torch

from graphfeed.storage.features.cached_feature import CachedFeature, Name, wrap_with_cached_feature
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.features.gpu_feature_cache import GPUFeatureCache


class GPUCachedFeature(CachedFeature):
    """A feature with a cache in a GPU's memory, where its rows are returned: see `gpu_cached_feature`.

    Ids may lie on the CPU or on the GPU. A fallback in pinned memory is read over the bus, by the ids on the GPU; any
    other reads what is missing on the CPU, and it is copied. `read()` without ids is the fallback's own.

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
        """Tell whether the fallback lies in page-locked memory; the cache lies where nobody needs that."""
        return self._fallback_feature.is_pinned()

    def _for_fallback(self, ids: torch.Tensor) -> torch.Tensor:
        return ids if self._fallback_feature.is_pinned() else ids.cpu()


@overload
def gpu_cached_feature(
    fallback_features: Feature, max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> GPUCachedFeature: ...


@overload
def gpu_cached_feature(
    fallback_features: Mapping[Name, Feature], max_cache_size_in_bytes: int, device: torch.device | str = "cuda"
) -> dict[Name, GPUCachedFeature]: ...


def gpu_cached_feature(
    fallback_features: Feature | Mapping[Any, Feature],
    max_cache_size_in_bytes: int,
    device: torch.device | str = "cuda",
) -> GPUCachedFeature | dict[Any, GPUCachedFeature]:
    """Keep rows of features that lie in memory or on disk in a GPU's memory; of each set those read last (LRU).

    What is read is the same bits as without. Put `copy_to` before `fetch_feature`, and no ids go back and forth. The
    bound is one of memory: it counts the rows and 16 bytes for each, where GraphBolt counts the rows alone. It doesn't
    count the mini-batches that are returned, nor what a read holds while it lasts: see `GPUFeatureCache`. For a feature
    on disk wrap one that has a cache in memory: `gpu_cached_feature(cpu_cached_feature(feature, ...), ...)`.

    Args:
        fallback_features: One, or a dict of features that share one cache; their rows must have as many bytes.
        max_cache_size_in_bytes: Bound for the cache of them all; what has no room for a row keeps none.
        device: Where the cache is.

    Raises:
        ImportError: There is no CuPy, which the kernels need.
        RuntimeError: torch finds no CUDA device.
        ValueError: Rows of different sizes, or a negative number of bytes.

    Example:
        On a CPU, whose kernels do the same:

        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> papers, authors = TorchBasedFeature(torch.eye(2)), TorchBasedFeature(torch.ones(1, 2))
        >>> both = gpu_cached_feature({"paper": papers, "author": authors}, 1000, device="cpu")
        >>> both["author"].read(torch.tensor([0])).tolist()
        [[1.0, 1.0]]
    """
    return wrap_with_cached_feature(GPUCachedFeature, fallback_features, max_cache_size_in_bytes, device=device)
