"""Rows in memory, and stores of features: sharing of memory, page-locking, moves, lookup and opening."""

import warnings
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.memory import SharedMemory
from graphfeed.storage import (
    BasicFeatureStore,
    DiskBasedFeature,
    Feature,
    FeatureKey,
    FeatureStore,
    OnDiskFeatureData,
    TorchBasedFeature,
    TorchBasedFeatureStore,
)
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused
from tests.stand_ins.emulated_cuda import DEVICE, EmulatedCuda
from tests.stand_ins.locked_memory import LockedMemory

ROWS = torch.arange(12).reshape(4, 3)


def test_without_ids_the_tensor_itself_is_read() -> None:
    assert TorchBasedFeature(ROWS).read() is ROWS


def test_rows_that_do_not_lie_together_are_copied_once() -> None:
    feature = TorchBasedFeature(ROWS.T)
    assert feature.read().is_contiguous()
    assert_same(feature.read(torch.tensor([2])), ROWS.T[[2]])


def mapped(rows: int) -> torch.Tensor:
    """Return rows on pages without other data."""
    return torch.from_numpy(np.asarray(SharedMemory.create(rows * PAGESIZE))).view(torch.float32).reshape(rows, -1)


def test_a_feature_is_pinned_where_it_lies_or_as_a_copy() -> None:
    with LockedMemory().installed() as memory:
        for rows in (mapped(2), ROWS.clone()):
            feature = TorchBasedFeature(rows).pin_memory_()
            assert feature.is_pinned()
            assert memory.holds_all(feature.read())
            assert torch.equal(feature.read(), rows)
            assert (feature.read() is rows) == (rows.shape[0] == 2)
            del feature


def test_rows_that_replace_pinned_ones_are_pinned() -> None:
    with LockedMemory().installed() as memory:
        first, second = mapped(2), mapped(3)
        feature = TorchBasedFeature(first).pin_memory_()
        feature.update(second)
        assert feature.read() is second
        assert list(memory.locked) == [second.data_ptr()]
        memory.status.update(dict.fromkeys(memory.status, 2))
        with pytest.raises(RuntimeError, match="CUDA can't page-lock"):
            feature.update(mapped(4))
        memory.status.update(dict.fromkeys(memory.status, 0))
        assert feature.read() is second
        assert list(memory.locked) == [second.data_ptr()]
        feature.update(ROWS)
        assert feature.is_pinned()
        assert not memory.holds_all(second)
        assert torch.equal(feature.read(), ROWS)
        read_only = ROWS.numpy().copy()
        read_only.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of arrays that can't be written
            feature = TorchBasedFeature(read_only)
        memory.locked[feature.read().data_ptr()] = feature.read().nbytes  # as if other code had pinned it
        feature.update(ROWS[:1] + 1, torch.tensor([0]))
        assert feature.is_pinned()
        assert torch.equal(feature.read()[0], ROWS[0] + 1)
        assert torch.equal(torch.from_numpy(read_only.copy()), ROWS)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_rows_of_a_read_only_array_are_constant_until_an_update_also_one_to_another_such_array() -> None:
    arrays: list[Any] = [ROWS.numpy().copy(), ROWS.numpy() + 1]
    for array in arrays:
        array.flags.writeable = False
    feature = TorchBasedFeature(arrays[0])
    assert feature.is_constant()
    feature.update(arrays[1])
    assert not feature.is_constant()
    assert not TorchBasedFeature(ROWS).is_constant()


def test_an_array_is_not_copied_and_a_file_that_is_mapped_for_reading_is_not_written_to(tmp_path: Path) -> None:
    rows = ROWS.numpy().copy()
    assert TorchBasedFeature(rows).read().data_ptr() == rows.ctypes.data
    np.save(tmp_path / "feat.npy", rows)
    mapped = np.load(tmp_path / "feat.npy", mmap_mode="r")
    feature = TorchBasedFeature(mapped).to("cpu")
    assert feature.read().data_ptr() == mapped.ctypes.data
    feature.update(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([1]))
    assert feature.read(torch.tensor([1])).tolist() == [[0, 0, 0]]
    assert np.array_equal(np.load(tmp_path / "feat.npy"), rows)


def test_what_is_no_feature_is_refused() -> None:
    interface: Any = Feature
    weights, in_memory = torch.nn.Embedding(4, 3).weight, TorchBasedFeature(ROWS.float())
    table: list[Refusal] = [
        (lambda: TorchBasedFeature([["a"]]), TypeError, r"torch_feature must be a torch.Tensor, .* but is \[\['a'\]\]"),
        (lambda: TorchBasedFeature(torch.arange(3)), ValueError,
         "greater than 1, but got 1 dimension; make a column of"),
        (lambda: TorchBasedFeature(ROWS.to("meta")), ValueError, "on the device 'meta', where tensors have no values"),
        (lambda: TorchBasedFeature(weights), ValueError, r"requires gradients, but rows that are read have none; pass"),
        (lambda: gf.index_select(weights, torch.tensor([0])), ValueError,
         r"values requires gradients, .*; give .detach"),
        (lambda: in_memory.update(weights[:1], torch.tensor([0])), ValueError, "value requires gradients, but rows"),
        (lambda: in_memory.update(ROWS[:1], torch.tensor([0])), ValueError,
         r"rows of value must have shape \(3,\) and torch.float32, but have \(3,\) and torch.int64"),
        (interface, TypeError, "abstract"),
    ]  # fmt: skip
    if not torch.cuda.is_available():
        without = (lambda: TorchBasedFeature(ROWS).pin_memory_(), RuntimeError, "needs a CUDA device to pin memory for")
        table.append(without)
    check_refused(table)
    assert_same(TorchBasedFeature(weights.detach()).read(), weights.detach())
    with torch.no_grad():
        assert_same(gf.index_select(weights, torch.tensor([3, 0])), weights[[3, 0]])


KEY = ("node", "paper", "feat")
WEIGHT = ("edge", None, "weight")
NUMBERS = torch.arange(6).reshape(3, 2)


def test_features_are_found_read_updated_added_and_replaced_by_key() -> None:
    features: dict[tuple[str, str | None, str], Feature] = {
        KEY: TorchBasedFeature(NUMBERS.clone(), {"unit": "m"}), WEIGHT: TorchBasedFeature(torch.ones(4, 1)),
    }  # fmt: skip
    store = BasicFeatureStore(features)
    assert (len(store), list(store.keys())) == (2, [KEY, WEIGHT])
    assert KEY in store
    assert ("node", None, "feat") not in store
    assert store[KEY] is store[FeatureKey(*KEY)]
    assert_same(store.read(*KEY), NUMBERS)
    assert_same(store.read(*KEY, torch.tensor([2, 2])), NUMBERS[[2, 2]])
    assert (store.size(*KEY), store.count(*WEIGHT), store.metadata(*KEY)) == (torch.Size([2]), 4, {"unit": "m"})
    store.update(*KEY, torch.tensor([[9, 9]]), torch.tensor([1]))
    assert store.read(*KEY).tolist() == [[0, 1], [9, 9], [4, 5]]
    store.update(*KEY, NUMBERS)
    assert_same(store.read(*KEY), NUMBERS)
    for added in (NUMBERS, NUMBERS + 1):
        store["node", None, "feat"] = TorchBasedFeature(added)
        assert_same(store.read("node", None, "feat"), added)
    assert len(features) == 2


def test_a_store_of_ones_own_needs_only_look_ups() -> None:
    class Lazy(FeatureStore):
        def __getitem__(self, feature_key: tuple[str, str | None, str]) -> Feature:
            return TorchBasedFeature(torch.full((2, 1), len(feature_key[2])))

    store = Lazy()
    assert store.read("node", None, "four", torch.tensor([1])).tolist() == [[4]]
    assert store.count("node", None, "x") == 2
    for call in (store.keys, lambda: KEY in store, lambda: store.__setitem__(KEY, TorchBasedFeature(NUMBERS))):
        with pytest.raises(NotImplementedError):
            call()


FLOATS = torch.arange(6.0).reshape(3, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", FLOATS.numpy())
    torch.save(FLOATS, tmp_path / "rows.pt")
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
        assert_same(store.read(domain, kind, name, torch.tensor([2, 0])), FLOATS[[2, 0]])
    assert store.metadata("edge", None, "c") == {"unit": "m"}
    assert store.metadata("node", "paper", "a") == {}


def test_rows_in_memory_move_to_a_device_as_another_feature_and_those_on_disk_stay(folder: Path) -> None:
    in_memory = OnDiskFeatureData("node", "a", "torch", folder / "rows.pt", extra_fields={"unit": "m"})
    store = TorchBasedFeatureStore(
        [in_memory, OnDiskFeatureData("node", "b", "numpy", folder / "rows.npy", in_memory=False)]
    )
    with EmulatedCuda().running():
        with pytest.warns(UserWarning, match="DiskBasedFeature has no rows in memory"):
            moved = store.to(DEVICE)
        assert type(moved) is TorchBasedFeatureStore
        assert moved.read("node", None, "a").device == DEVICE
        assert moved.metadata("node", None, "a") == {"unit": "m"}
        with pytest.raises(ValueError, match="only memory of the CPU can be page-locked, but a tensor is on"):
            moved["node", None, "a"].pin_memory_()
    assert moved["node", None, "b"] is store["node", None, "b"]
    assert_same(store.read("node", None, "a"), FLOATS)
    assert store["node", None, "a"].to("cpu").read() is store.read("node", None, "a")


def test_a_store_has_a_list_of_keys_and_takes_edge_types_as_tuples() -> None:
    kind = ("user", "likes", "item")
    store = gf.BasicFeatureStore({("edge", kind, "w"): gf.TorchBasedFeature(NUMBERS)})
    assert store.keys() == [("edge", "user:likes:item", "w")]
    assert ("edge", kind, "w") in store
    assert ("edge", "user:likes:item", "w") in store
    assert "w" not in store
    assert_same(store.read("edge", kind, "w", torch.tensor([2, 0])), NUMBERS[[2, 0]])
    store["node", None, "feat"] = gf.TorchBasedFeature(NUMBERS)
    assert store.keys()[1] == ("node", None, "feat")


def test_pinning_returns_what_is_pinned_and_files_stay(folder: Path) -> None:
    graph, feature = gf.from_coo(([0], [1]), 2), TorchBasedFeature(FLOATS)
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
        assert [name for name, _ in what.list_caches()] == expected, what


def test_what_cannot_be_opened_or_found_is_named(folder: Path) -> None:
    def opened(format: Any, name: str, in_memory: bool = True) -> TorchBasedFeatureStore:
        return TorchBasedFeatureStore([OnDiskFeatureData("node", "a", format, folder / name, in_memory=in_memory)])

    check_refused([
        (lambda: opened("torch", "rows.pt", False), ValueError, r"rows.pt: format torch must be in memory; save it"),
        (lambda: opened("csv", "rows.pt"), ValueError, r"rows.pt: format must be 'torch' or 'numpy', but is 'csv'"),
        (lambda: BasicFeatureStore({KEY: PLAIN}).read("node", None, "x"), KeyError,
         r"'x'\) is not in the feature store; it has \[\('no"),
    ])  # fmt: skip
