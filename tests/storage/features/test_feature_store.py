import pickle

import pytest
import torch

from graphfeed.storage import BasicFeatureStore, Feature, FeatureStore, TorchBasedFeature
from graphfeed.storage.features.feature_store import FeatureKey
from tests.digests import assert_same

KEY = ("node", "paper", "feat")
ROWS = torch.arange(6).reshape(3, 2)


def make_store() -> BasicFeatureStore:
    return BasicFeatureStore(
        {
            KEY: TorchBasedFeature(ROWS.clone(), {"unit": "m"}),
            ("edge", None, "weight"): TorchBasedFeature(torch.ones(4, 1)),
        }
    )


def test_features_are_found_by_key() -> None:
    store = make_store()
    assert len(store) == 2
    assert list(store.keys()) == [KEY, ("edge", None, "weight")]
    assert KEY in store
    assert ("node", None, "feat") not in store
    assert store[KEY] is store[FeatureKey(*KEY)]


def test_a_feature_is_read_through_the_store() -> None:
    store = make_store()
    assert_same(store.read(*KEY), ROWS)
    assert_same(store.read(*KEY, torch.tensor([2, 2])), ROWS[[2, 2]])
    assert store.size(*KEY) == torch.Size([2])
    assert store.count("edge", None, "weight") == 4
    assert store.metadata(*KEY) == {"unit": "m"}


def test_a_feature_is_updated_through_the_store() -> None:
    store = make_store()
    store.update(*KEY, torch.tensor([[9, 9]]), torch.tensor([1]))
    assert store.read(*KEY).tolist() == [[0, 1], [9, 9], [4, 5]]
    store.update(*KEY, ROWS)
    assert_same(store.read(*KEY), ROWS)


def test_a_feature_can_be_added_and_replaced() -> None:
    features: dict[tuple[str, str | None, str], Feature] = {}
    store = BasicFeatureStore(features)
    store["node", None, "feat"] = TorchBasedFeature(ROWS)
    store["node", None, "feat"] = TorchBasedFeature(ROWS + 1)
    assert_same(store.read("node", None, "feat"), ROWS + 1)
    assert features == {}


def test_an_unknown_key_is_named_beside_those_there_are() -> None:
    with pytest.raises(
        KeyError, match=r"\('node', None, 'x'\) is not in the feature store; it has \[\('node', 'paper'"
    ):
        make_store().read("node", None, "x")


def test_it_prints_keys_and_shapes() -> None:
    store = BasicFeatureStore({KEY: TorchBasedFeature(ROWS)})
    assert repr(store) == "BasicFeatureStore({('node', 'paper', 'feat'): TorchBasedFeature(int64[3, 2])})"


def test_it_pickles_small() -> None:
    store = BasicFeatureStore({KEY: TorchBasedFeature(torch.ones(100_000, 10))})
    packed = pickle.dumps(store)
    assert len(packed) < 1 << 13
    assert_same(pickle.loads(packed).read(*KEY, torch.tensor([99_999])), torch.ones(1, 10))


def test_a_store_of_ones_own_needs_only_look_ups() -> None:
    class Lazy(FeatureStore):
        def __getitem__(self, feature_key: tuple[str, str | None, str]) -> Feature:
            return TorchBasedFeature(torch.full((2, 1), len(feature_key[2])))

    store = Lazy()
    assert store.read("node", None, "four", torch.tensor([1])).tolist() == [[4]]
    assert store.count("node", None, "x") == 2
    for call in (store.keys, lambda: KEY in store, lambda: store.__setitem__(KEY, TorchBasedFeature(ROWS))):
        with pytest.raises(NotImplementedError):
            call()
