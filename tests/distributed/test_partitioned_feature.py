import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedFeature

VALUES = torch.arange(12.0).view(6, 2)
BOOK = PartBook.from_bounds([0, 6])


def test_rows_are_read_by_id() -> None:
    feature = PartitionedFeature(VALUES, BOOK)
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(feature.read(ids), VALUES[ids])
    assert torch.equal(feature.read(), VALUES)
    assert (feature.count(), feature.size(), feature.dtype) == (6, torch.Size([2]), torch.float32)
    assert repr(feature) == "PartitionedFeature(float32[6, 2], part 0 of 1)"


def test_the_rows_may_be_any_feature() -> None:
    cached = gf.cpu_cached_feature(gf.TorchBasedFeature(VALUES), 1 << 10)
    assert torch.equal(PartitionedFeature(cached, BOOK).read(torch.tensor([3])), VALUES[3:4])


def test_ids_outside_are_refused() -> None:
    with pytest.raises(IndexError):
        PartitionedFeature(VALUES, BOOK).read(torch.tensor([6]))


def test_rows_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must be the 6 that rank 0 owns, but are 5"):
        PartitionedFeature(VALUES[1:], BOOK)
    with pytest.raises(ValueError, match="there are 2 parts, but 1 ranks"):
        PartitionedFeature(VALUES, PartBook.from_bounds([0, 6, 6]))


def test_updates_and_other_processes_are_refused_with_what_to_do() -> None:
    feature = PartitionedFeature(VALUES, BOOK)
    with pytest.raises(NotImplementedError, match=r"feature\.rows\.update"):
        feature.update(VALUES)
    with pytest.raises(TypeError, match="worker='thread'"):
        pickle.dumps(feature)


@pytest.mark.slow
def test_rows_that_are_often_read_are_kept_in_a_cache_and_not_sent_again(shared: list[Any]) -> None:
    plain, cached = ([found["cache"][number] for found in shared] for number in range(2))
    assert [equal for equal, _ in plain + cached] == [True] * 6
    row_bytes, remote = 4 * 4, 2 / 3
    least = row_bytes * remote * (60 + 10)
    sent = [sum(num_bytes for _, num_bytes in found) / 3 for found in (plain, cached)]
    # Each message has a head of its own, here larger than the rows.
    assert sent[0] - sent[1] > 9 * row_bytes * remote * 60 * 0.8
    assert sent[1] > least
