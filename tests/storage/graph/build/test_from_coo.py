from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import expand_indptr
from graphfeed.storage import FusedCSCSamplingGraph, TemporalQuery, from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.sampling.temporal_sampling import timed_columns
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import assert_same

IN_TIME = SamplingRequest([], temporal=TemporalQuery(edge_timestamp_attr_name="time"))

SOURCES = torch.tensor([4, 0, 1, 4, 2])
DESTINATIONS = torch.tensor([1, 3, 1, 0, 3])
TYPED = {
    "user:likes:item": (torch.tensor([1, 0, 1]), torch.tensor([2, 2, 0])),
    "item:liked_by:user": (torch.tensor([2, 0]), torch.tensor([1, 1])),
    "user:knows:user": (torch.tensor([0]), torch.tensor([1])),
}
COUNTS = {"user": 2, "item": 3}


def edges_of(graph: FusedCSCSamplingGraph) -> list[tuple[int, int, int]]:
    """Return source, destination and edge id of each edge."""
    ends = expand_indptr(graph.csc_indptr, torch.int64)
    ids = graph.edge_attribute(ORIGINAL_EDGE_ID)
    return list(zip(graph.indices.tolist(), ends.tolist(), ids.tolist(), strict=True))


def test_edges_are_sorted_by_destination_and_keep_their_order() -> None:
    graph = from_coo((SOURCES, DESTINATIONS), 5)
    assert_same(graph.csc_indptr, torch.tensor([0, 1, 3, 3, 5, 5]))
    assert_same(graph.indices, torch.tensor([4, 4, 1, 0, 2]))
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([3, 0, 2, 1, 4]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2)), max_size=30))
def test_columns_may_lie_in_the_order_of_an_attribute(rows: list[tuple[int, int, int]]) -> None:
    sources, destinations, times = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).T
    graph = from_coo((sources, destinations), 4, edge_attributes={"time": times}, sort_by="time")
    expected = sorted(range(len(rows)), key=lambda row: (rows[row][1], rows[row][2]))
    assert edges_of(graph) == [(*rows[row][:2], row) for row in expected]
    assert graph.edge_attribute("time").tolist() == [rows[row][2] for row in expected]
    assert timed_columns(graph, IN_TIME).order is None


def test_columns_lie_in_the_order_of_an_attribute_by_type() -> None:
    times = {kind: torch.arange(len(part[0])).flip(0) for kind, part in TYPED.items()}
    graph = from_coo(TYPED, COUNTS, edge_attributes={"time": times}, sort_by="time")
    assert graph.type_per_edge is not None
    stamps = list(zip(graph.type_per_edge.tolist(), graph.edge_attribute("time").tolist(), strict=True))
    bounds = graph.csc_indptr.tolist()
    columns = [stamps[low:high] for low, high in pairwise(bounds)]
    assert columns == [sorted(column) for column in columns]
    own = dict(enumerate(times.values()))
    ids = graph.edge_attribute(ORIGINAL_EDGE_ID).tolist()
    assert [int(own[kind][row]) for (kind, _), row in zip(stamps, ids, strict=True)] == [time for _, time in stamps]
    assert timed_columns(graph, IN_TIME, by_type=True).order is None


def test_the_dtype_of_the_ids_is_kept() -> None:
    graph = from_coo((SOURCES.int(), DESTINATIONS.int()), 5)
    assert graph.indices.dtype == torch.int32
    assert edges_of(graph) == edges_of(from_coo((SOURCES, DESTINATIONS), 5))


def test_the_number_of_nodes_may_come_from_numpy() -> None:
    assert from_coo((SOURCES, DESTINATIONS), np.int64(7)).num_nodes == 7  # type: ignore[arg-type]


def test_a_graph_may_have_no_edges_and_no_nodes() -> None:
    none = torch.tensor([], dtype=torch.int64)
    assert from_coo((none, none), 3).num_nodes == 3
    assert from_coo((none, none), 0).num_nodes == 0
    typed = from_coo({"user:likes:item": (none, none)}, {"user": 0, "item": 2})
    assert typed.num_edges == {"user:likes:item": 0}
    assert typed.num_nodes == {"user": 0, "item": 2}


def test_attributes_go_with_their_edges_and_nodes() -> None:
    weights, ages = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4]), torch.arange(5)
    graph = from_coo(
        (SOURCES, DESTINATIONS), 5, node_attributes={"age": ages}, edge_attributes={"weight": weights[:, None]}
    )
    assert_same(graph.edge_attribute("weight"), weights[graph.edge_attribute(ORIGINAL_EDGE_ID)][:, None])
    assert graph.node_attribute("age") is ages


def test_edge_ids_of_ones_own_stay() -> None:
    graph = from_coo((SOURCES, DESTINATIONS), 5, edge_attributes={ORIGINAL_EDGE_ID: torch.arange(50, 55)})
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([53, 50, 52, 51, 54]))


def test_types_are_stacked_in_the_order_given() -> None:
    graph = from_coo(TYPED, COUNTS)
    assert graph.node_type_to_id == {"user": 0, "item": 1}
    assert graph.edge_type_to_id == {kind: number for number, kind in enumerate(TYPED)}
    assert_same(graph.node_type_offset, torch.tensor([0, 2, 5]))
    assert graph.num_nodes == COUNTS
    assert graph.num_edges == {"user:likes:item": 3, "item:liked_by:user": 2, "user:knows:user": 1}
    assert graph.type_per_edge is not None
    # User 1 is reached by items 2 and 0 (relation 1), then by user 0 (relation 2).
    assert_same(graph.csc_indptr, torch.tensor([0, 0, 3, 4, 4, 6]))
    assert_same(graph.indices, torch.tensor([4, 2, 0, 1, 1, 0]))
    assert graph.type_per_edge.tolist() == [1, 1, 2, 0, 0, 0]
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([0, 1, 0, 2, 0, 1]))


def test_typed_attributes_go_with_their_edges_and_nodes() -> None:
    weights = {kind: 10.0 * number + torch.arange(len(pair[0])) for number, (kind, pair) in enumerate(TYPED.items())}
    ages = {"item": torch.tensor([3, 4, 5]), "user": torch.tensor([1, 2])}
    graph = from_coo(TYPED, COUNTS, node_attributes={"age": ages}, edge_attributes={"weight": weights})
    assert graph.type_per_edge is not None
    assert_same(graph.edge_attribute("weight"), 10.0 * graph.type_per_edge + graph.edge_attribute(ORIGINAL_EDGE_ID))
    assert_same(graph.node_attribute("age"), torch.tensor([1, 2, 3, 4, 5]))


def test_more_edge_types_than_a_byte_counts() -> None:
    edges = {f"user:r{number}:user": (torch.tensor([0]), torch.tensor([1])) for number in range(300)}
    graph = from_coo(edges, {"user": 2})
    assert graph.type_per_edge is not None
    assert graph.type_per_edge.tolist() == list(range(300))


def test_no_edges_may_be_given_in_any_way() -> None:
    none: Any
    for none in (torch.tensor([]), torch.empty(2, 0), [], (torch.tensor([]), torch.tensor([])), ([], [])):
        assert from_coo(none, 3).num_edges == 0
        graph = from_coo({"user:likes:item": none}, COUNTS)
        assert graph.num_edges == {"user:likes:item": 0}
    types = {name: getattr(graph, name) for name in ("node_type_offset", "node_type_to_id", "edge_type_to_id")}
    same = fused_csc_sampling_graph(graph.csc_indptr, torch.tensor([]), type_per_edge=torch.tensor([]), **types)
    assert same.indices.dtype == torch.int64
    assert same.num_edges == graph.num_edges
    graph.indices = torch.tensor([])
    assert graph.indices.dtype == torch.int64
