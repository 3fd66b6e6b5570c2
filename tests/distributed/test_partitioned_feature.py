import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedFeature, Peers, cut_rows
from tests.distributed.joint import in_threads

VALUES = torch.arange(12.0).view(6, 2)
BOOK = PartBook.from_bounds([0, 6])


def test_rows_are_read_by_id() -> None:
    feature = PartitionedFeature(VALUES, BOOK)
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(feature.read(ids), VALUES[ids])
    assert torch.equal(feature.read(), VALUES)
    assert (feature.count(), feature.size(), feature.dtype) == (6, torch.Size([2]), torch.float32)
    assert repr(feature) == "PartitionedFeature(float32[6, 2], part 0 of 1)"


def test_rows_of_a_single_rank_are_local_unless_they_are_no_tensor() -> None:
    ids, out = torch.tensor([5, 0]), torch.zeros(2, 2)
    feature = PartitionedFeature(VALUES, BOOK)
    remote, write_local = feature.split_local(ids)
    assert remote.tolist() == []
    write_local(out)
    assert torch.equal(out, VALUES[ids])
    cached = PartitionedFeature(gf.cpu_cached_feature(gf.TorchBasedFeature(VALUES), 1 << 10), BOOK)
    assert cached.split_local(ids)[0].tolist() == [0, 1]
    assert torch.equal(gf.cpu_cached_feature(cached, 1 << 10).read(ids), VALUES[ids])


def test_the_rows_may_be_any_feature() -> None:
    cached = gf.cpu_cached_feature(gf.TorchBasedFeature(VALUES), 1 << 10)
    assert torch.equal(PartitionedFeature(cached, BOOK).read(torch.tensor([3])), VALUES[3:4])


def test_ids_outside_are_refused() -> None:
    with pytest.raises(IndexError):
        PartitionedFeature(VALUES, BOOK).read(torch.tensor([6]))


@pytest.mark.parametrize("share_memory", [True, False])
def test_ranks_with_other_books_get_an_error_and_no_rows_of_other_ids(share_memory: bool) -> None:
    books = [PartBook.from_assignment(torch.tensor(parts)) for parts in ([0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1])]

    def work(rank: int, peers: Peers) -> None:
        feature = PartitionedFeature(cut_rows(VALUES, books[rank], rank), books[rank], peers)
        with pytest.raises(
            ValueError, match=r"assignment of 'rows 0' is .*; let all ranks open parts of one partition"
        ):
            feature.read(torch.tensor([0, 5, 1]))

    in_threads(2, work, share_memory=share_memory)


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
def test_rows_that_are_often_read_are_kept_in_a_cache_and_others_are_asked_for_at_once(shared: list[Any]) -> None:
    plain, cached, in_memory = ([found["cache"][number] for found in shared] for number in range(3))
    assert all(found["equal"] for found in plain + cached + in_memory)
    row_bytes, remote = 4 * 4, 2 / 3
    least = row_bytes * remote * (60 + 10)
    sent = [sum(found["bytes"] for found in case) / 3 for case in (plain, cached)]
    # Each message has a head of its own, here larger than the rows.
    assert sent[0] - sent[1] > 9 * row_bytes * remote * 60 * 0.8
    assert sent[1] > least
    for found in cached:
        assert found["looked_up"] == found["remote"], "rows of its own were looked up"
        assert found["exchanges"] <= 10, "more than one for each read"
    assert [(found["looked_up"], found["exchanges"]) for found in in_memory] == [(0, 0)] * 3
