import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
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


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_each_edge_keeps_its_row_as_its_id(pairs: list[tuple[int, int]]) -> None:
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    graph = from_coo(edges, 6)
    assert sorted(edges_of(graph), key=lambda edge: edge[2]) == [(*pair, row) for row, pair in enumerate(pairs)]


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


def test_what_is_sorted_by_has_to_be_there_and_of_integers() -> None:
    with pytest.raises(KeyError, match="sort_by is 'time', but edge_attributes has"):
        from_coo((SOURCES, DESTINATIONS), 5, sort_by="time")
    with pytest.raises(TypeError, match=r"the values to sort by must be torch\.int64"):
        from_coo((SOURCES, DESTINATIONS), 5, edge_attributes={"time": torch.rand(5)}, sort_by="time")


@pytest.mark.parametrize(
    "edges",
    [
        torch.stack([SOURCES, DESTINATIONS]),
        [SOURCES, DESTINATIONS],
        (SOURCES.numpy(), DESTINATIONS.numpy()),
        (SOURCES.tolist(), DESTINATIONS.tolist()),
    ],
    ids=["tensor", "list", "arrays", "numbers"],
)
def test_edge_lists_may_be_anything_like_tensors(edges: Any) -> None:
    assert edges_of(from_coo(edges, 5)) == edges_of(from_coo((SOURCES, DESTINATIONS), 5))


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


@pytest.mark.parametrize(
    ("edges", "num_nodes", "message"),
    [
        ((SOURCES,), 5, "edges must be (sources, destinations) or a tensor of shape (2, E), but has 1 parts"),
        (torch.zeros(5, 2, dtype=torch.int64), 5, "or a tensor of shape (2, E), but has (5, 2)"),
        ((SOURCES, DESTINATIONS[:4]), 5, "equally long, but have 5 and 4 ids"),
        ((SOURCES, DESTINATIONS), 4, "sources must lie in 0 .. 3, but holds 4"),
        ((SOURCES, DESTINATIONS - 1), 5, "destinations must lie in 0 .. 4, but holds -1"),
        ((SOURCES, DESTINATIONS), -1, "num_nodes must be 0 or more, but is -1"),
        (TYPED, {"user": 2, "item": -3}, "num_nodes['item'] must be 0 or more, but is -3"),
        (TYPED, {"user": 2, "item": 2}, "edges['user:likes:item'] (ids of 'item') must lie in 0 .. 1, but holds 2"),
        (TYPED, {"user": 2}, "edges has type 'user:likes:item'; an edge type is 'source:relation:destination' with"),
        ({"user:user": (SOURCES, SOURCES)}, {"user": 5}, "edges has type 'user:user'; an edge type is"),
        ({"user:x:user": (SOURCES, SOURCES[:1])}, {"user": 5}, "has 5 sources and 1 destinations; give one per edge"),
        ({}, {"user": 5}, "edges is empty; give an edge list for at least one edge type"),
    ],
)
def test_what_is_no_graph_is_named(edges: Any, num_nodes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        from_coo(edges, num_nodes)


@pytest.mark.parametrize(
    ("edges", "num_nodes", "message"),
    [
        ((SOURCES.float(), DESTINATIONS), 5, "sources must be torch.int32 or torch.int64, but is torch.float32; conv"),
        ((SOURCES, DESTINATIONS), 5.0, "num_nodes must be a whole number, but is 5.0"),
        ((SOURCES, DESTINATIONS), {"user": 5}, "edges and num_nodes must both be dicts by type, or neither"),
        (TYPED, 5, "edges and num_nodes must both be dicts by type, or neither"),
        ({"user:x:user": (SOURCES.float(), SOURCES)}, {"user": 5}, "edges['user:x:user'] must be torch.int32 or"),
    ],
)
def test_what_has_another_type_is_named(edges: Any, num_nodes: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        from_coo(edges, num_nodes)


def test_an_attribute_of_another_length_is_named() -> None:
    with pytest.raises(ValueError, match=r"edge_attributes\['w'\] must have 5 rows, one for each edge, but has 4"):
        from_coo((SOURCES, DESTINATIONS), 5, edge_attributes={"w": torch.ones(4)})
    with pytest.raises(ValueError, match=r"node_attributes\['w'\] must have 5 rows, one for each node, but has 4"):
        from_coo((SOURCES, DESTINATIONS), 5, node_attributes={"w": torch.ones(4)})


def test_a_typed_attribute_of_another_length_is_named_though_the_sum_is_right() -> None:
    likes, liked, knows = TYPED
    wrong = {likes: torch.ones(2), liked: torch.ones(3), knows: torch.ones(1)}
    with pytest.raises(
        ValueError, match=r"edge_attributes\['w'\]\['user:likes:item'\] must have 3 rows, .*, but has 2"
    ):
        from_coo(TYPED, COUNTS, edge_attributes={"w": wrong})
    with pytest.raises(ValueError, match=r"node_attributes\['w'\]\['user'\] must have 2 rows, .*, but has 3"):
        from_coo(TYPED, COUNTS, node_attributes={"w": {"user": torch.ones(3), "item": torch.ones(2)}})


def test_a_typed_attribute_that_lacks_a_type_is_named() -> None:
    with pytest.raises(KeyError, match=r"edge_attributes\['w'\] must have the types .*, but has \['user:likes:item'\]"):
        from_coo(TYPED, COUNTS, edge_attributes={"w": {"user:likes:item": torch.ones(3)}})
    with pytest.raises(KeyError, match=r"node_attributes\['w'\] must have the types .*, but has \['user'\]"):
        from_coo(TYPED, COUNTS, node_attributes={"w": {"user": torch.ones(2)}})


@pytest.mark.parametrize("typed", [False, True])
def test_more_nodes_than_memory_holds_are_refused(typed: bool) -> None:
    edges: Any = torch.tensor([[0], [1]])
    for count in (2**62, 2**70):
        with pytest.raises(ValueError, match=f"num_nodes is {count}: with 8 bytes for each node that takes"):
            from_coo({"a:r:a": edges} if typed else edges, {"a": count} if typed else count)


@pytest.mark.parametrize("none", [torch.tensor([]), torch.empty(2, 0), [], (torch.tensor([]), torch.tensor([]))])
def test_no_edges_may_be_given_in_any_way(none: Any) -> None:
    assert from_coo(none, 3).num_edges == 0
    graph = from_coo({"user:likes:item": none}, COUNTS)
    assert graph.num_edges == {"user:likes:item": 0}
    types = {name: getattr(graph, name) for name in ("node_type_offset", "node_type_to_id", "edge_type_to_id")}
    same = fused_csc_sampling_graph(graph.csc_indptr, torch.tensor([]), type_per_edge=torch.tensor([]), **types)
    assert same.indices.dtype == torch.int64
    assert same.num_edges == graph.num_edges
    graph.indices = torch.tensor([])
    assert graph.indices.dtype == torch.int64
