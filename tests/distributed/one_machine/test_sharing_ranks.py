"""Three processes of one machine that share the columns and rows of their parts, or can't."""

import gc
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartitionedFeature, PartitionedGraph, Peers, cut_rows, edge_positions
from graphfeed.distributed.one_machine import shared_columns
from graphfeed.distributed.ranks.peers import rank_and_size
from graphfeed.storage.features import feature_cache
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.storage.memory import Handle, find_places
from tests.digests import digest
from tests.distributed.equal_pipelines import assign, feature_in_parts, in_parts
from tests.distributed.graphs import plain
from tests.distributed.rank_processes import run_cases
from tests.test_survival import belongings

VALUES = torch.arange(400.0).view(100, 4)


def digests_of(graph: gf.SamplingGraph, **options: Any) -> list[str]:
    """Return digests of an epoch."""
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(100, names="seeds"), batch_size=30, shuffle=True)
    pipe = pipe.sample_neighbor(graph, [3, 4], **options)
    with gf.DataLoader(pipe, 0, seed=rank_and_size()[0]) as loader:
        return [digest(batch) for batch in loader]


def of_all_ranks(value: Any) -> list[Any]:
    """Return what each rank gives."""
    found: list[Any] = [None] * rank_and_size()[1]
    distributed.all_gather_object(found, value)
    return found


def memory_and_threads_go_with_what_used_them() -> None:
    def share() -> None:
        peers = Peers()
        graph, feature = in_parts(plain(), "random", peers), feature_in_parts(VALUES, "random", 0, peers)
        digests_of(graph)
        feature.read(torch.arange(100))
        assert belongings()[2] > 0
        peers.close()
        peers.join()

    share()
    distributed.barrier()
    before = belongings()
    share()
    gc.collect()
    assert belongings() == before  # descriptors, threads and mappings


def ids_of_edges_take_memory_only_where_they_are_not_their_places() -> None:
    for has_ids in (False, True):
        whole = plain()
        if not has_ids:
            kept = {name: rows for name, rows in whole.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
            whole = gf.FusedCSCSamplingGraph(**{**whole.fields(), "edge_attributes": kept})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edge_positions, "PIECE", 50)
            graph = in_parts(whole, "random")
            assert digests_of(graph) == digests_of(whole)
        distributed.barrier()
        assert (ORIGINAL_EDGE_ID in graph._here.columns.edge_attributes) == has_ids


def graphs_over_one_part_share_its_columns_and_another_rank_need_not() -> None:
    whole = plain()
    first = in_parts(whole, "random")
    second = PartitionedGraph(first.part)
    third = PartitionedGraph(replace(first.part) if rank_and_size()[0] == 1 else first.part)
    for graph in (second, third, first):
        assert digests_of(graph, prob_name="weight") == digests_of(whole, prob_name="weight")
    distributed.barrier()
    assert second._here is first._here
    assert (third._here is first._here) == (rank_and_size()[0] != 1)


def all_sample_by_the_same_sums_of_weights() -> None:
    whole, graph = plain(), in_parts(plain(), "random")
    assert digests_of(graph, prob_name="weight") == digests_of(whole, prob_name="weight")
    (place,) = find_places([graph._here.columns.cumulative_weights("weight")])
    assert isinstance(place, Handle)
    assert len(set(of_all_ranks(place.inode))) == 1


def sample_elsewise(name: str, replacement: Callable[..., Any]) -> tuple[int, list[str]]:
    """Sample where memory can't be shared; return how often others were asked, and what was warned of."""
    whole, peers = plain(), Peers()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(shared_columns, name, replacement)
        assert digests_of(in_parts(whole, "random", peers)) == digests_of(whole)
        distributed.barrier()
    peers.close()
    peers.join()
    return peers.traffic.exchanges, [str(warning.message) for warning in caught]


def where_memory_lacks_ranks_ask_each_other_and_one_says_so() -> None:
    exchanges, warned = sample_elsewise("available_memory", lambda: 0.0)
    assert exchanges >= 4 * 2
    (text,) = [text for texts in of_all_ranks(warned) for text in texts]
    assert "GB together, and 0.0 GB are free; so ranks here ask each other" in text


def where_the_system_forbids_it_ranks_ask_each_other() -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    exchanges, _ = sample_elsewise("open_handle", refuse)
    # The first rank, which put them together, has no need to.
    assert exchanges >= 4 * 2 or rank_and_size()[0] == 0


def parts_with_other_attributes_are_refused() -> None:
    graph = in_parts(plain(), "random")
    if rank_and_size()[0] == 1:
        graph.part.columns.add_edge_attribute("more", torch.zeros(graph.part.columns.total_num_edges))
    distributed.barrier()  # as others may sample, and copy the edges of this part, before it is edited
    with pytest.raises((RuntimeError, ValueError), match=r"rank 1 has edges with.*all parts must have the same"):
        graph.in_subgraph(torch.arange(100))


def rows_that_their_rank_updates_are_seen_by_all() -> None:
    rank, world_size = rank_and_size()
    peers = Peers()
    feature = feature_in_parts(VALUES, "range", 0, peers)
    assert torch.equal(feature.read(torch.tensor([99, 0, 99])), VALUES[[99, 0, 99]])
    distributed.barrier()
    if rank == world_size - 1:
        feature.rows.update(torch.full((1, 4), -1.0), feature.book.offsets_of(torch.tensor([99])))
    distributed.barrier()
    assert feature.read(torch.tensor([99])).tolist() == [[-1.0] * 4]
    distributed.barrier()
    assert peers.traffic.exchanges == 2, "more than where the rows lie was asked, and what they are was said"
    peers.close()
    peers.join()


class Elsewhere(gf.TorchBasedFeature):
    """Rows that don't lie in memory, as far as anybody knows."""

    def may_read_in_threads(self) -> bool:
        """Tell that they don't."""
        return False


def rows_on_disk_are_asked_for_and_others_are_not() -> None:
    rank = rank_and_size()[0]
    book = assign(100, "random")
    own = cut_rows(VALUES, book, rank)
    feature = PartitionedFeature(Elsewhere(own) if rank == 0 else own, book)
    ids = torch.tensor([5, 99, 5, 0, *range(100)])
    for given in (ids, ids.int(), ids[:0]):
        assert torch.equal(feature.read(given), VALUES[given])


def read_often(cache_bytes: int, share_memory: bool) -> dict[str, Any]:
    """Make ten reads of much the same ids; return what this rank sent and looked up."""
    peers = Peers(share_memory=share_memory)
    in_parts = feature_in_parts(VALUES, "random", 0, peers)
    feature: Any = gf.cpu_cached_feature(in_parts, cache_bytes) if cache_bytes else in_parts
    in_parts.read(torch.arange(0))  # asks where rows lie
    exchanges, remote = peers.traffic.exchanges, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_cache, "READ_BYTES", 4 * VALUES[0].nbytes)
        for number in range(10):
            ids = torch.tensor([*range(60), 90 + number])
            assert torch.equal(feature.read(ids), VALUES[ids])
            remote += int((in_parts.book.owners_of(ids) != peers.rank).sum())
    distributed.barrier()
    peers.close()
    peers.join()
    looked_up = feature._cache.hits + feature._cache.misses if cache_bytes else None
    sent = {"exchanges": peers.traffic.exchanges - exchanges, "bytes": peers.traffic.bytes_sent}
    return {**sent, "remote": remote, "looked_up": looked_up}


def rows_that_are_often_read_are_kept_in_a_cache_and_others_are_asked_for_at_once() -> None:
    plain, cached = read_often(0, False), read_often(1 << 14, False)
    sent, sent_with_cache = (sum(of_all_ranks(found["bytes"])) / 3 for found in (plain, cached))
    row_bytes, remote = 4 * 4, 2 / 3
    # Each message has a head of its own, here larger than the rows.
    assert sent - sent_with_cache > 9 * row_bytes * remote * 60 * 0.8
    assert sent_with_cache > row_bytes * remote * (60 + 10)
    assert cached["looked_up"] == cached["remote"], "rows of its own were looked up"
    assert cached["exchanges"] <= 10, "more than one for each read"
    in_memory = read_often(1 << 14, True)
    assert (in_memory["looked_up"], in_memory["exchanges"]) == (0, 0)


@pytest.mark.slow
def test_columns_are_shared_where_they_can_be(tmp_path: Path) -> None:
    cases = [
        memory_and_threads_go_with_what_used_them,
        ids_of_edges_take_memory_only_where_they_are_not_their_places,
        graphs_over_one_part_share_its_columns_and_another_rank_need_not,
        all_sample_by_the_same_sums_of_weights,
        where_memory_lacks_ranks_ask_each_other_and_one_says_so,
        where_the_system_forbids_it_ranks_ask_each_other,
        parts_with_other_attributes_are_refused,
    ]
    run_cases(cases, 3, tmp_path)


@pytest.mark.slow
def test_rows_are_shared_where_they_can_be(tmp_path: Path) -> None:
    cases = [
        rows_that_their_rank_updates_are_seen_by_all,
        rows_on_disk_are_asked_for_and_others_are_not,
        rows_that_are_often_read_are_kept_in_a_cache_and_others_are_asked_for_at_once,
    ]
    run_cases(cases, 3, tmp_path)
