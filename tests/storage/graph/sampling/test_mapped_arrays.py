"""A graph in a file that may not stay in memory is read by page, with the same results."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.storage import FusedCSCSamplingGraph, from_coo, load_graph
from graphfeed.storage.graph.sampling import mapped_arrays
from graphfeed.storage.graph.sampling.mapped_arrays import files_read, in_passes, is_by_page, mapped_reads
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.temporal_query import TemporalQuery
from graphfeed.storage.memory import mapped_file
from tests.digests import assert_same

NUM_NODES = 3000
SEEDS, REQUEST = torch.arange(0, NUM_NODES, 7), SamplingRequest((torch.tensor([3]), torch.tensor([-1])))
FEW = (torch.tensor([3]), torch.tensor([2]))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a graph that is more than may be taken to stay in memory."""
    monkeypatch.setattr(mapped_file, "LEAST_MAPPED", 0)
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 4 * 80_000 * 8)
    edges = torch.randint(0, NUM_NODES, (2, 80_000))
    attributes = {"w": torch.rand(80_000), "t": torch.randint(0, 1000, (80_000,))}
    from_coo((edges[0], edges[1]), NUM_NODES, edge_attributes=attributes).save(tmp_path / "graph")
    return tmp_path / "graph"


def advice_for(array: torch.Tensor) -> bool:
    """Tell whether the system knows that an array is read at random, by its table of mappings."""
    place, inside = array.data_ptr() // 4096 * 4096, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            low, high = (int(part, 16) for part in first.split("-"))
            inside = low <= place < high
        elif inside and first == "VmFlags:":
            return "rr" in line.split()
    raise AssertionError("the graph is not mapped")


def in_memory(graph: FusedCSCSamplingGraph) -> FusedCSCSamplingGraph:
    """Return a copy of a graph that lies in no file."""
    copy = FusedCSCSamplingGraph(**move(graph.fields()))
    assert mapped_reads(copy) is None
    return copy


def move(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return {name: move(part) for name, part in value.items()} if isinstance(value, dict) else value


QUERY = TemporalQuery(edge_timestamp_attr_name="t")
TIMES = torch.full_like(SEEDS, 500)
CALLS: dict[str, Callable[[FusedCSCSamplingGraph], Any]] = {
    "all hops": lambda graph: graph.sample_hops(SEEDS, REQUEST, [1, 2]),
    "all hops by weight": lambda graph: graph.sample_hops(SEEDS, replace(REQUEST, probs_name="w"), [1, 2]),
    "all hops by LABOR": lambda graph: graph.labor_sample_hops(SEEDS, REQUEST, [(1, 2), (3, 4)], 0.3),
    "all hops by LABOR, repeated": lambda graph: graph.labor_sample_hops(
        SEEDS, replace(REQUEST, fanouts=FEW, replace=True), [(1, 2), (3, 4)]
    ),
    "all hops in time": lambda graph: graph.temporal_sample_hops(
        SEEDS, TIMES, replace(REQUEST, temporal=QUERY), [1, 2]
    ),
    "trees": lambda graph: graph.sample_hops(SEEDS, replace(REQUEST, only_new=True, disjoint=True), [1, 2]),
    "one hop": lambda graph: graph.sample_neighbors(SEEDS, torch.tensor([3]), key=1),
    "one hop by weight, repeated": lambda graph: graph.sample_neighbors(SEEDS, FEW[0], True, "w", key=1),
    "one hop by LABOR": lambda graph: graph.sample_layer_neighbors(SEEDS, torch.tensor([3]), random_seed=[5]),
    "one hop in time": lambda graph: graph.temporal_sample_neighbors(
        SEEDS, TIMES, FEW[0], edge_timestamp_attr_name="t", key=1
    ),
    "in-edges": lambda graph: graph.in_subgraph(SEEDS),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_sampled_by_page_is_the_same(path: Path, call: Callable[[FusedCSCSamplingGraph], Any]) -> None:
    graph = load_graph(path)
    assert is_by_page(graph)
    assert_same(call(graph), call(in_memory(graph)))
    call(graph)
    assert not is_by_page(graph)  # all of it is in memory


BY_TYPE = SamplingRequest((torch.tensor([3, 2]), torch.tensor([2, -1])))
TYPED_SEEDS = {"a": torch.arange(0, 1000, 7), "b": torch.arange(900)}
TYPED_CALLS: dict[str, Callable[[FusedCSCSamplingGraph], Any]] = {
    "all hops": lambda graph: graph.sample_hops(TYPED_SEEDS, BY_TYPE, [1, 2]),
    "all hops by LABOR": lambda graph: graph.labor_sample_hops(TYPED_SEEDS, BY_TYPE, [(1, 2), (3, 4)]),
    "one hop": lambda graph: graph.sample_neighbors(TYPED_SEEDS, BY_TYPE.fanouts[0], key=1),
}


@pytest.mark.parametrize("call", TYPED_CALLS.values(), ids=TYPED_CALLS)
def test_a_graph_with_types_is_sampled_by_page(path: Path, call: Callable[[FusedCSCSamplingGraph], Any]) -> None:
    edges = {f"{source}:to:b": (torch.randint(0, 1000, (40_000,)), torch.randint(0, 900, (40_000,))) for source in "ab"}
    edges["b:to:b"] = (edges["b:to:b"][1], edges["b:to:b"][0] % 900)
    from_coo(edges, {"a": 1000, "b": 900}).save(path)
    graph = load_graph(path)
    assert is_by_page(graph)
    assert_same(call(graph), call(in_memory(graph)))


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST,
        replace(REQUEST, fanouts=FEW, replace=True),
        replace(REQUEST, probs_name="w"),
        replace(REQUEST, only_new=True),
    ],
    ids=["", "repeated", "by weight", "one after the other"],
)
def test_mini_batches_are_sampled_together(path: Path, request_: SamplingRequest) -> None:
    graph, seeds = load_graph(path), [SEEDS, SEEDS[:1], SEEDS[5:50]]
    keys = [[1, 2], [3, 4], [5, 6]]
    expected = [
        in_memory(graph).sample_hops(own, request_, own_keys) for own, own_keys in zip(seeds, keys, strict=True)
    ]
    assert is_by_page(graph)
    assert_same(graph.sample_hops_together(seeds, request_, keys), expected)
    assert_same(in_memory(graph).sample_hops_together(seeds, request_, keys), expected)


def test_a_graph_that_may_stay_in_memory_is_read_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 1e9)
    graph = load_graph(path)
    assert mapped_reads(graph) is None
    assert not advice_for(graph.indices)


def test_each_process_advises_its_own_mapping(path: Path) -> None:
    graph = load_graph(path)
    assert not advice_for(graph.indices)
    assert is_by_page(graph)
    assert advice_for(graph.indices)
    again = pickle.loads(pickle.dumps(graph))  # as a worker gets it
    assert not advice_for(again.indices)
    assert is_by_page(again)
    assert advice_for(again.indices)
    assert not is_by_page(copy.deepcopy(graph))


def test_a_graph_that_is_given_other_arrays_is_looked_at_again(path: Path) -> None:
    graph = load_graph(path)
    assert is_by_page(graph)
    before = files_read(graph).num_bytes
    graph.indices = graph.indices.clone()
    assert files_read(graph).num_bytes == before - graph.indices.nbytes


def test_column_starts_stay_in_memory_where_there_is_room_for_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load_graph(path)
    mapped_reads(graph)
    assert not advice_for(graph.csc_indptr)
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 8 * graph.csc_indptr.nbytes - 1)
    graph = load_graph(path)
    mapped_reads(graph)
    assert advice_for(graph.csc_indptr)


def test_passes_over_the_whole_graph_read_ahead(path: Path) -> None:
    graph = load_graph(path)
    mapped_reads(graph)
    with in_passes(graph):
        assert not advice_for(graph.indices)
    assert advice_for(graph.indices)
    assert graph.cumulative_weights("w").numel() == graph.total_num_edges
    assert advice_for(graph.indices)
