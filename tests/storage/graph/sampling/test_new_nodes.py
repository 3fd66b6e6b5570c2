"""Sampling each node once, and in trees; `tests/pyg/neighborhood.py` is the slow version with full fan-outs."""

from itertools import pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling.new_nodes import trees_of_rows
from tests.pipelines import random_edges

SEEDS = torch.tensor([4, 9, 4, 30])
KEYS = [11, 12, 13]


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(random_edges(80, 80, 300, 1), 80)


def request(*fanouts: int, **options: Any) -> gf.SamplingRequest:
    return gf.SamplingRequest([torch.tensor([fanout]) for fanout in reversed(fanouts)], only_new=True, **options)


def edges_of(hop: gf.SampledSubgraph) -> list[tuple[int, int]]:
    csc: Any = hop.sampled_csc
    columns = torch.repeat_interleave(torch.arange(len(csc.indptr) - 1), csc.indptr.diff())
    return list(zip(csc.indices.tolist(), columns.tolist(), strict=True))


def test_a_hop_samples_what_the_one_before_found() -> None:
    hops = make_graph().sample_hops(SEEDS, request(2, 2, 2), KEYS)[::-1]
    for before, hop in pairwise(hops):
        known = len(before.original_column_node_ids)
        assert all(column >= known for _, column in edges_of(hop))
        assert torch.equal(hop.original_column_node_ids, before.original_row_node_ids)
    assert len(hops) == 3


def test_the_first_hop_is_that_of_a_sampler_which_samples_all_nodes() -> None:
    graph = make_graph()
    new = graph.sample_hops(SEEDS, request(2), KEYS[:1])[0]
    everything = graph.sample_hops(SEEDS, gf.SamplingRequest([torch.tensor([2])]), KEYS[:1])[0]
    assert edges_of(new) == edges_of(everything)
    assert torch.equal(new.original_row_node_ids, everything.original_row_node_ids)


def test_trees_share_no_node() -> None:
    hops = make_graph().sample_hops(SEEDS, request(3, 3, disjoint=True), KEYS[:2])
    trees: Any = trees_of_rows(hops)
    rows: Any = hops[0].original_row_node_ids
    assert trees[:4].tolist() == [0, 1, 2, 3]
    assert len(set(zip(trees.tolist(), rows.tolist(), strict=True))) == len(rows)
    for hop in hops:
        assert all(trees[row] == trees[column] for row, column in edges_of(hop))


def test_a_seed_that_is_there_twice_has_two_equal_trees() -> None:
    hops = make_graph().sample_hops(SEEDS, request(3, 3, disjoint=True), KEYS[:2])
    trees: Any = trees_of_rows(hops)
    rows: Any = hops[0].original_row_node_ids
    assert rows[trees == 0].tolist() == rows[trees == 2].tolist()


@pytest.mark.parametrize("strategy", ["uniform", "latest"])
def test_with_types_and_times_and_windows(strategy: str) -> None:
    times = torch.arange(300) % 40
    edges = {"a:r:b": random_edges(80, 60, 300, 1), "b:s:a": random_edges(60, 80, 300, 2)}
    graph = gf.from_coo(edges, {"a": 80, "b": 60}, edge_attributes={"time": dict.fromkeys(edges, times)})
    items = gf.HeteroItemSet({"b": gf.ItemSet((torch.arange(60), torch.arange(60) % 40), names=("seeds", "timestamp"))})
    pipe = gf.ItemSampler(items, 30).temporal_sample_neighbor(
        graph, [4, 4], edge_timestamp_attr_name="time", pre_time_window=10, inclusive=True, disjoint=True,
        strategy=strategy,  # type: ignore[arg-type]
    )  # fmt: skip
    ages = []
    for batch in pipe:
        limits = batch.timestamp["b"]
        trees: Any = trees_of_rows(batch.sampled_subgraphs)
        for hop in batch.sampled_subgraphs:
            for kind, csc in hop.sampled_csc.items():
                columns = torch.repeat_interleave(torch.arange(len(csc.indptr) - 1), csc.indptr.diff())
                ages += (limits[trees[kind[-1]][columns]] - times[hop.original_edge_ids[kind]]).tolist()
    assert set(ages) == set(range(11))
