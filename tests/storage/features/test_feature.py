import pickle
import warnings
from mmap import PAGESIZE, mmap
from typing import Any
from unittest.mock import patch

import pytest
import torch

from graphfeed.ops.backend import PACKAGES
from graphfeed.ops.memory.pinned import READ_ONLY
from graphfeed.storage import Feature, TorchBasedFeature
from tests.digests import assert_same
from tests.ops.locked_memory import LockedMemory
from tests.tensors import DTYPES

ROWS = torch.arange(12).reshape(4, 3)


@pytest.mark.parametrize("index", [[], [3], [2, 0, 2]], ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_come_in_the_order_asked_for(index: list[int], index_dtype: torch.dtype, dtype: torch.dtype) -> None:
    rows = ROWS.to(dtype)
    ids = torch.tensor(index, dtype=index_dtype)
    assert_same(TorchBasedFeature(rows).read(ids), rows[ids.long()])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_says_what_rows_are_of(dtype: torch.dtype) -> None:
    assert TorchBasedFeature(ROWS.to(dtype)).dtype is dtype


@pytest.mark.parametrize("shape", [(4, 1), (4, 0), (4, 2, 3), (0, 3)], ids=str)
def test_rows_have_any_shape(shape: tuple[int, ...]) -> None:
    feature = TorchBasedFeature(torch.rand(shape))
    assert feature.size() == torch.Size(shape[1:])
    assert feature.count() == shape[0]
    assert feature.read(torch.arange(shape[0])).shape == shape


def test_without_ids_the_tensor_itself_is_read() -> None:
    assert TorchBasedFeature(ROWS).read() is ROWS


def test_rows_that_do_not_lie_together_are_copied_once() -> None:
    feature = TorchBasedFeature(ROWS.T)
    assert feature.read().is_contiguous()
    assert_same(feature.read(torch.tensor([2])), ROWS.T[[2]])


@pytest.mark.parametrize("wrong", [4, -1])
def test_an_id_without_a_row_is_named(wrong: int) -> None:
    with pytest.raises(IndexError, match=rf"index must lie in 0 .. 3, but holds {wrong}"):
        TorchBasedFeature(ROWS).read(torch.tensor([0, wrong]))


def test_all_rows_can_be_replaced() -> None:
    feature = TorchBasedFeature(ROWS)
    feature.update(ROWS + 1)
    assert_same(feature.read(), ROWS + 1)


def test_some_rows_can_be_overwritten() -> None:
    feature = TorchBasedFeature(ROWS.clone())
    feature.update(torch.tensor([[7, 7, 7], [8, 8, 8]]), torch.tensor([3, 0]))
    assert feature.read()[:, 0].tolist() == [8, 3, 6, 7]


def test_an_update_that_does_not_fit_is_refused() -> None:
    feature = TorchBasedFeature(ROWS)
    with pytest.raises(ValueError, match="ids and value must have the same length, but got 1 and 2"):
        feature.update(ROWS[:2], torch.tensor([0]))
    with pytest.raises(ValueError, match=r"rows of value must have shape \(3,\), but have \(2,\)"):
        feature.update(ROWS[:1, :2], torch.tensor([0]))


@pytest.mark.parametrize("wrong", [torch.tensor([0, 4]), torch.tensor([-1, 0])], ids=["too large", "negative"])
def test_an_update_of_a_row_that_is_not_there_changes_nothing(wrong: torch.Tensor) -> None:
    feature = TorchBasedFeature(ROWS.clone())
    with pytest.raises(IndexError, match=r"ids must lie in 0 .. 3"):
        feature.update(ROWS[:2], wrong)
    assert_same(feature.read(), ROWS)


def test_what_is_no_feature_is_refused() -> None:
    with pytest.raises(TypeError, match=r"torch_feature must be a torch.Tensor, .* but is \[\['a'\]\]"):
        TorchBasedFeature([["a"]])
    with pytest.raises(
        ValueError, match=r"must be greater than 1, but got 1 dimension; make a column of it with .unsq"
    ):
        TorchBasedFeature(torch.arange(3))
    with pytest.raises(ValueError, match=r"on the device 'meta', where tensors have no values; give one with values"):
        TorchBasedFeature(ROWS.to("meta"))
    with pytest.raises(ValueError, match="must be greater than 1, but got 1 dimension"):
        TorchBasedFeature(ROWS).update(torch.arange(3))


def test_metadata_is_kept() -> None:
    assert TorchBasedFeature(ROWS).metadata() == {}
    assert TorchBasedFeature(ROWS, {"unit": "m"}).metadata() == {"unit": "m"}


def test_it_says_that_it_may_read_in_threads_and_prints_its_shape() -> None:
    assert TorchBasedFeature(ROWS).may_read_in_threads()
    assert repr(TorchBasedFeature(ROWS)) == "TorchBasedFeature(int64[4, 3])"


@pytest.mark.parametrize("rows", [4, 100_000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_pickles_small(rows: int, dtype: torch.dtype) -> None:
    feature = TorchBasedFeature((torch.arange(rows * 3) % 5).reshape(rows, 3).to(dtype), {"unit": "m"})
    packed = pickle.dumps(feature)
    again = pickle.loads(packed)
    assert len(packed) < 1 << 13
    assert_same(again.read(), feature.read())
    assert again.metadata() == {"unit": "m"}


def test_a_feature_of_ones_own_needs_four_methods() -> None:
    class Squares(Feature):
        def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
            ids = torch.arange(self.count()) if ids is None else ids
            return (ids**2)[:, None]

        def size(self) -> torch.Size:
            return torch.Size([1])

        def count(self) -> int:
            return 10

        def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
            raise NotImplementedError

    feature = Squares()
    assert feature.read(torch.tensor([3])).tolist() == [[9]]
    assert feature.metadata() == {}
    assert not feature.may_read_in_threads()
    assert not feature.is_pinned()
    (rows,) = feature.read_async(torch.tensor([4]))
    assert rows.wait().tolist() == [[16]]


def test_rows_that_are_waited_for_are_read_once() -> None:
    reads: list[torch.Tensor] = []

    class Counted(TorchBasedFeature):
        def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
            reads.append(super().read(ids))
            return reads[-1]

    feature = Counted(ROWS)
    stages = list(feature.read_async(torch.tensor([2])))
    assert len(stages) == feature.read_async_num_stages(torch.device("cpu")) == 1
    assert reads == []
    assert stages[0].wait() is stages[0].wait() is reads[0]
    assert len(reads) == 1


def test_plain_memory_is_not_pinned() -> None:
    assert not TorchBasedFeature(ROWS).is_pinned()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinning_without_a_device_is_one_error() -> None:
    with pytest.raises(RuntimeError, match="pin_memory_ needs a CUDA device to pin memory for, and torch finds none"):
        TorchBasedFeature(ROWS).pin_memory_()


def mapped(rows: int) -> torch.Tensor:
    """Return rows on pages that hold nothing else."""
    return torch.frombuffer(mmap(-1, rows * PAGESIZE), dtype=torch.float32).reshape(rows, -1)


def test_a_feature_is_pinned_where_it_lies_or_as_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with LockedMemory().installed() as memory:
        for rows in (mapped(2), ROWS.clone()):
            feature = TorchBasedFeature(rows).pin_memory_()
            assert feature.is_pinned()
            assert memory.holds_all(feature.read())
            assert torch.equal(feature.read(), rows)
            assert (feature.read() is rows) == (rows.shape[0] == 2)
            del feature
        monkeypatch.setitem(PACKAGES, "meta", "cuda")  # lets it pass for a GPU
        with pytest.raises(ValueError, match="only memory of the CPU can be page-locked, but a tensor is on meta"):
            TorchBasedFeature(ROWS.to("meta")).pin_memory_()


def test_rows_that_replace_pinned_ones_are_pinned() -> None:
    with LockedMemory().installed() as memory:
        first, second = mapped(2), mapped(3)
        feature = TorchBasedFeature(first).pin_memory_()
        feature.update(second)
        assert feature.read() is second
        assert list(memory.locked) == [second.data_ptr()]
        with patch.dict(memory.status, {0: 2, READ_ONLY: 2}), pytest.raises(RuntimeError, match="CUDA can't page-lock"):
            feature.update(mapped(4))
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
        memory.locked[feature.read().data_ptr()] = feature.read().nbytes  # as somebody else may have pinned it
        feature.update(ROWS[:1] + 1, torch.tensor([0]))
        assert feature.is_pinned()
        assert torch.equal(feature.read()[0], ROWS[0] + 1)
        assert torch.equal(torch.from_numpy(read_only.copy()), ROWS)


def test_it_moves_to_a_device_as_another_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "meta", "cuda")  # lets it pass for a GPU
    feature = TorchBasedFeature(ROWS, {"unit": "m"})
    moved = feature.to("meta")
    assert moved.read().device.type == "meta"
    assert moved.metadata() == {"unit": "m"}
    assert feature.read() is feature.to(torch.device("cpu")).read() is ROWS


def test_the_interface_alone_is_no_feature() -> None:
    interface: Any = Feature
    with pytest.raises(TypeError, match="abstract"):
        interface()
