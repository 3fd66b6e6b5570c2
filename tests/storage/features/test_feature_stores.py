"""Stores of features: what is looked up by key, opened from files, moved and pinned as one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.backend import PACKAGES
from graphfeed.storage import (
    BasicFeatureStore,
    DiskBasedFeature,
    Feature,
    FeatureStore,
    OnDiskFeatureData,
    TorchBasedFeature,
    TorchBasedFeatureStore,
)
from graphfeed.storage.features.feature_store import FeatureKey
from graphfeed.storage.memory.cache_use import HasCaches
from tests.digests import assert_same
from tests.ops.locked_memory import LockedMemory
from tests.refusals import check_refused

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


def test_it_prints_keys_and_shapes() -> None:
    store = BasicFeatureStore({KEY: TorchBasedFeature(ROWS)})
    assert repr(store) == "BasicFeatureStore({('node', 'paper', 'feat'): TorchBasedFeature(int64[3, 2])})"


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


PAIRS = torch.arange(6.0).reshape(3, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", PAIRS.numpy())
    torch.save(PAIRS, tmp_path / "rows.pt")
    return tmp_path


def test_each_file_becomes_a_feature_where_it_should_lie(folder: Path) -> None:
    store = TorchBasedFeatureStore(
        [
            OnDiskFeatureData("node", "a", "torch", folder / "rows.pt", "paper"),
            OnDiskFeatureData("node", "b", "numpy", str(folder / "rows.npy"), "paper"),
            OnDiskFeatureData("edge", "c", "numpy", folder / "rows.npy", in_memory=False, extra_fields={"unit": "m"}),
        ]
    )
    assert list(store.keys()) == [("node", "paper", "a"), ("node", "paper", "b"), ("edge", None, "c")]
    kinds = [type(store[key]) for key in store.keys()]  # noqa: SIM118
    assert kinds == [TorchBasedFeature, TorchBasedFeature, DiskBasedFeature]
    for domain, kind, name in store.keys():  # noqa: SIM118
        assert_same(store.read(domain, kind, name, torch.tensor([2, 0])), PAIRS[[2, 0]])
    assert store.metadata("edge", None, "c") == {"unit": "m"}
    assert store.metadata("node", "paper", "a") == {}


def test_what_may_read_in_threads_moves_and_what_is_on_disk_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TorchBasedFeatureStore(
        [
            OnDiskFeatureData("node", "a", "torch", folder / "rows.pt"),
            OnDiskFeatureData("node", "b", "numpy", folder / "rows.npy", in_memory=False),
        ]
    )
    monkeypatch.setitem(PACKAGES, "meta", "cuda")  # lets it pass for a GPU
    with pytest.warns(UserWarning, match="DiskBasedFeature has no rows in memory"):
        moved = store.to("meta")
    assert type(moved) is TorchBasedFeatureStore
    assert moved.read("node", None, "a").device.type == "meta"
    assert moved["node", None, "b"] is store["node", None, "b"]
    assert_same(store.read("node", None, "a"), PAIRS)


def test_a_store_has_a_list_of_keys_and_takes_edge_types_as_tuples() -> None:
    kind = ("user", "likes", "item")
    store = gf.BasicFeatureStore({("edge", kind, "w"): gf.TorchBasedFeature(ROWS)})
    assert store.keys() == [("edge", "user:likes:item", "w")]
    assert ("edge", kind, "w") in store
    assert ("edge", "user:likes:item", "w") in store
    assert "w" not in store
    assert_same(store.read("edge", kind, "w", torch.tensor([2, 0])), ROWS[[2, 0]])  # type: ignore[arg-type]
    store["node", None, "feat"] = gf.TorchBasedFeature(ROWS)
    assert store.keys()[1] == ("node", None, "feat")


def test_pinning_returns_what_is_pinned_and_files_stay(folder: Path) -> None:
    graph, feature = gf.from_coo(([0], [1]), 2), TorchBasedFeature(PAIRS)
    store = TorchBasedFeatureStore([OnDiskFeatureData("node", "feat", "numpy", folder / "rows.npy")])
    disk = DiskBasedFeature(folder / "rows.npy")
    with LockedMemory().installed() as memory:
        assert graph.pin_memory_() is graph
        assert feature.pin_memory_() is feature
        assert not store.is_pinned()
        assert store.pin_memory_() is store
        assert store.is_pinned()
        assert memory.holds_all(store.read("node", None, "feat"))
    with pytest.warns(UserWarning, match="does nothing"):
        assert disk.pin_memory_() is disk
    on_disk = OnDiskFeatureData("edge", "c", "numpy", folder / "rows.npy", in_memory=False)
    assert not TorchBasedFeatureStore([on_disk]).is_pinned()


PLAIN = TorchBasedFeature(torch.zeros(2, 1))
CACHED = gf.cpu_cached_feature(PLAIN, 1000)


def test_features_and_stores_list_their_caches_by_name() -> None:
    store = gf.BasicFeatureStore({("node", "a", "x"): CACHED, ("node", None, "y"): PLAIN})
    names: list[tuple[Any, list[str]]] = [
        (PLAIN, []), (CACHED, [""]), (gf.cpu_cached_feature(CACHED, 1000), ["", ""]), (store, ["node a x"]),
        (FeatureStore(), []),
    ]  # fmt: skip
    for what, expected in names:
        assert isinstance(what, HasCaches)
        assert [name for name, _ in what.list_caches()] == expected, what
    assert not isinstance(torch.zeros(1), HasCaches)


def test_what_cannot_be_opened_or_found_is_named_and_nothing_is_unpickled(folder: Path) -> None:
    torch.save(Path("/"), folder / "evil.pt")
    np.save(folder / "evil.npy", np.array([[Path("/")]]))

    def opened(format: Any, name: str, in_memory: bool = True) -> TorchBasedFeatureStore:
        return TorchBasedFeatureStore([OnDiskFeatureData("node", "a", format, folder / name, in_memory=in_memory)])

    check_refused(
        [
            (
                lambda: opened("torch", "rows.pt", False),
                ValueError,
                r"rows.pt: format torch must be in memory; save it",
            ),
            (lambda: opened("csv", "rows.pt"), ValueError, r"rows.pt: format must be 'torch' or 'numpy', but is 'csv'"),
            (lambda: opened("torch", "evil.pt"), ValueError, "without unpickling objects"),
            (lambda: opened("numpy", "evil.npy"), ValueError, "Python objects"),
            (
                lambda: make_store().read("node", None, "x"),
                KeyError,
                r"'x'\) is not in the feature store; it has \[\('no",
            ),
        ]
    )
