"""Rows in memory: whose memory they are, how they are locked and moved, and what a feature of one's own needs."""

import warnings
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.backend import PACKAGES
from graphfeed.ops.memory.pinned import READ_ONLY
from graphfeed.storage import Feature, TorchBasedFeature
from tests.array_likes import AS
from tests.digests import assert_same
from tests.ops.locked_memory import LockedMemory
from tests.refusals import Refusal, check_refused

ROWS = torch.arange(12).reshape(4, 3)


def test_without_ids_the_tensor_itself_is_read() -> None:
    assert TorchBasedFeature(ROWS).read() is ROWS


def test_rows_that_do_not_lie_together_are_copied_once() -> None:
    feature = TorchBasedFeature(ROWS.T)
    assert feature.read().is_contiguous()
    assert_same(feature.read(torch.tensor([2])), ROWS.T[[2]])


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


def test_rows_and_new_rows_may_be_array_likes() -> None:
    rows = ROWS.float()
    for name, convert in AS.items():
        feature = TorchBasedFeature(convert(rows.clone()))  # type: ignore[no-untyped-call]
        assert_same(feature.read(), rows)
        feature.update(convert(-rows[:2]), convert(torch.tensor([2, 1])))  # type: ignore[no-untyped-call]
        assert torch.equal(feature.read(), torch.stack([rows[0], -rows[1], -rows[0], rows[3]])), name
        feature.update(convert(-rows))  # type: ignore[no-untyped-call]
        assert_same(feature.read(), -rows)


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
    weights = torch.nn.Embedding(4, 3).weight
    table: list[Refusal] = [
        (lambda: TorchBasedFeature([["a"]]), TypeError, r"torch_feature must be a torch.Tensor, .* but is \[\['a'\]\]"),
        (
            lambda: TorchBasedFeature(torch.arange(3)),
            ValueError,
            "greater than 1, but got 1 dimension; make a column of",
        ),
        (lambda: TorchBasedFeature(ROWS.to("meta")), ValueError, "on the device 'meta', where tensors have no values"),
        (lambda: TorchBasedFeature(weights), ValueError, r"requires gradients, and rows that are read have none; give"),
        (
            lambda: gf.index_select(weights, torch.tensor([0])),
            ValueError,
            r"values requires gradients, .*; give .detach",
        ),
        (interface, TypeError, "abstract"),
    ]
    if not torch.cuda.is_available():
        without = (lambda: TorchBasedFeature(ROWS).pin_memory_(), RuntimeError, "needs a CUDA device to pin memory for")
        table.append(without)
    check_refused(table)
    assert_same(TorchBasedFeature(weights.detach()).read(), weights.detach())
    with torch.no_grad():
        assert_same(gf.index_select(weights, torch.tensor([3, 0])), weights[[3, 0]])
