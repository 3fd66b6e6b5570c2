import pytest
import torch

from graphfeed.storage import CPUFeatureCache, GPUFeatureCache
from graphfeed.storage.row_cache import RowCache

CACHES = [CPUFeatureCache((5, 3), torch.float32), GPUFeatureCache((5, 3), torch.float32, device="cpu")]
each_cache = pytest.mark.parametrize("cache", CACHES, ids=lambda cache: type(cache).__name__)


@each_cache
def test_what_is_asked_for_is_counted(cache: RowCache) -> None:
    assert cache.miss_rate == 0
    cache.query_and_replace(torch.tensor([1, 2, 1]), lambda keys: torch.zeros(len(keys), 3))
    assert (cache.hits, cache.misses, cache.miss_rate) == (1, 2, 2 / 3)
    assert not cache.is_pinned()
    assert cache.device == torch.device("cpu")


@each_cache
def test_keys_and_rows_are_checked(cache: RowCache) -> None:
    with pytest.raises(TypeError, match=r"keys must be torch.int32 or torch.int64, but is torch.float32"):
        cache.replace(torch.zeros(1), torch.zeros(1, 3))
    with pytest.raises(IndexError, match="keys must be 0 or more with the offset 2, but one is -3"):
        cache.replace(torch.tensor([-3]), torch.zeros(1, 3), offset=2)
    with pytest.raises(ValueError, match="values must have one row a key, but has 2 for 1 keys"):
        cache.replace(torch.tensor([1]), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"rows of values must have 12 bytes as those of the cache, but are torch.fl"):
        cache.query_and_replace(torch.tensor([9]), lambda keys: torch.zeros(1, 3).double())
