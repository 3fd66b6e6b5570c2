import pytest
import torch

import graphfeed as gf
from graphfeed.storage.memory.cache_use import HasCaches

PLAIN = gf.TorchBasedFeature(torch.zeros(2, 1))
CACHED = gf.cpu_cached_feature(PLAIN, 1000)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (PLAIN, []),
        (CACHED, [""]),
        (gf.cpu_cached_feature(CACHED, 1000), ["", ""]),
        (gf.BasicFeatureStore({("node", "a", "x"): CACHED, ("node", None, "y"): PLAIN}), ["node a x"]),
        (gf.FeatureStore(), []),
    ],
)
def test_features_and_stores_list_their_caches_by_name(what: object, names: list[str]) -> None:
    assert isinstance(what, HasCaches)
    assert [name for name, _ in what.list_caches()] == names


def test_others_have_none() -> None:
    assert not isinstance(torch.zeros(1), HasCaches)
