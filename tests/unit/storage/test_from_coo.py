"""Graphs from arrays, lists, columns and PyG's dicts by tuple; errors name the wrong argument."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops import expand_indptr
from graphfeed.storage import FusedCSCSamplingGraph, from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

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


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2)), max_size=30))
def test_columns_may_lie_in_the_order_of_an_attribute(rows: list[tuple[int, int, int]]) -> None:
    sources, destinations, times = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).T
    graph = from_coo((sources, destinations), 4, edge_attributes={"time": times}, sort_by="time")
    expected = sorted(range(len(rows)), key=lambda row: (rows[row][1], rows[row][2]))
    assert edges_of(graph) == [(*rows[row][:2], row) for row in expected]
    assert graph.edge_attribute("time").tolist() == [rows[row][2] for row in expected]


def test_columns_lie_in_the_order_of_an_attribute_by_type() -> None:
    times = {kind: torch.arange(len(part[0])).flip(0) for kind, part in TYPED.items()}
    graph: Any = from_coo(TYPED, COUNTS, edge_attributes={"time": times}, sort_by="time")
    stamps = list(zip(graph.type_per_edge.tolist(), graph.edge_attribute("time").tolist(), strict=True))
    columns = [stamps[low:high] for low, high in pairwise(graph.csc_indptr.tolist())]
    assert columns == [sorted(column) for column in columns]
    own, ids = dict(enumerate(times.values())), graph.edge_attribute(ORIGINAL_EDGE_ID).tolist()
    assert [int(own[kind][row]) for (kind, _), row in zip(stamps, ids, strict=True)] == [time for _, time in stamps]


def test_ids_keep_their_dtype_or_become_int64_and_numbers_come_from_numpy() -> None:
    number: Any = np.int64(7)
    graph = from_coo((SOURCES.int(), DESTINATIONS.int()), number)
    assert (graph.indices.dtype, graph.num_nodes) == (torch.int32, 7)
    assert edges_of(graph) == edges_of(from_coo((SOURCES, DESTINATIONS), 5))
    for dtype in (torch.uint8, torch.int16, torch.uint32, torch.uint64):
        assert_same(from_coo(EDGES.to(dtype), 5).indices, from_coo(EDGES, 5).indices)


def test_edges_are_sorted_by_destination_and_keep_their_order_and_attributes() -> None:
    weights, ages, edges = torch.arange(5)[:, None] / 10, torch.arange(5), (SOURCES, DESTINATIONS)
    graph = from_coo(edges, 5, node_attributes={"age": ages}, edge_attributes={"weight": weights})
    assert_same(graph.csc_indptr, torch.tensor([0, 1, 3, 3, 5, 5]))
    assert_same(graph.indices, torch.tensor([4, 4, 1, 0, 2]))
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([3, 0, 2, 1, 4]))
    assert_same(graph.edge_attribute("weight"), weights[[3, 0, 2, 1, 4]])
    assert graph.node_attribute("age") is ages
    own = from_coo(edges, 5, edge_attributes={ORIGINAL_EDGE_ID: torch.arange(50, 55)})
    assert_same(own.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([53, 50, 52, 51, 54]))


def test_types_and_their_attributes_are_stacked_in_the_order_given() -> None:
    weights = {kind: 10.0 * number + torch.arange(len(pair[0])) for number, (kind, pair) in enumerate(TYPED.items())}
    ages = {"item": torch.tensor([3, 4, 5]), "user": torch.tensor([1, 2])}
    graph = from_coo(TYPED, COUNTS, node_attributes={"age": ages}, edge_attributes={"weight": weights})
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
    assert_same(graph.edge_attribute("weight"), torch.tensor([10.0, 11, 20, 2, 0, 1]))
    assert_same(graph.node_attribute("age"), torch.tensor([1, 2, 3, 4, 5]))


def test_more_edge_types_than_a_byte_counts_are_in_the_order_of_their_numbers() -> None:
    edges = {f"user:r{number}:user": (torch.tensor([0]), torch.tensor([1])) for number in range(300)}
    graph = from_coo(edges, {"user": 2})
    assert graph.type_per_edge is not None
    assert graph.type_per_edge.tolist() == list(range(300))
    fields = graph.fields()
    fields["edge_type_to_id"] = dict(reversed(fields["edge_type_to_id"].items()))
    assert fused_csc_sampling_graph(**fields).edge_types == list(edges)


def test_no_edges_may_be_given_in_any_way() -> None:
    none: Any
    for none in (torch.tensor([]), torch.empty(2, 0), [], (torch.tensor([]), torch.tensor([])), ([], [])):
        assert from_coo(none, 3).num_edges == 0
        graph = from_coo({"user:likes:item": none}, COUNTS)
        assert graph.num_edges == {"user:likes:item": 0}
        assert from_coo({"user:likes:item": none}, {"user": 0, "item": 2}).num_nodes == {"user": 0, "item": 2}
    types = {name: getattr(graph, name) for name in ("node_type_offset", "node_type_to_id", "edge_type_to_id")}
    same = fused_csc_sampling_graph(graph.csc_indptr, torch.tensor([]), type_per_edge=torch.tensor([]), **types)
    assert same.indices.dtype == torch.int64
    assert same.num_edges == graph.num_edges
    graph.indices = torch.tensor([])
    assert graph.indices.dtype == torch.int64


EDGES = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 3]])


def test_types_that_lack_an_attribute_exist_always_weigh_one_and_pass_a_mask() -> None:
    likes = "user:likes:item"
    graph = from_coo(
        TYPED,
        COUNTS,
        node_attributes={"born": {"item": torch.tensor([7, 8, 9], dtype=torch.int32)}},
        edge_attributes={
            "time": {likes: torch.tensor([5, 3, 4])},
            "w": {likes: torch.tensor([5.0, 0.0, 4.0], dtype=torch.float64)},
            "mask": {likes: torch.tensor([True, False, False])},
        },
    )
    always = torch.iinfo(torch.int64).min
    assert_same(graph.node_attribute("born"), torch.tensor([always, always, 7, 8, 9]))
    given = graph.type_per_edge == graph.edge_types.index(likes)
    for name, values, other in (("time", [4, 5, 3], always), ("w", [4.0, 5.0, 0.0], 1.0), ("mask", [0, 1, 0], True)):
        assert graph.edge_attribute(name)[given].tolist() == values
        assert graph.edge_attribute(name)[~given].tolist() == [other] * 3


def graph_of(edges: Any, num_nodes: Any, **options: Any) -> Callable[[], object]:
    return lambda: from_coo(edges, num_nodes, **options)


ENDS = (SOURCES, DESTINATIONS)
LARGE = torch.zeros(1_000_000)
MANY = torch.zeros(2, 1_000_000, dtype=torch.int64)
LIKES, LIKED, KNOWS = TYPED
WRONG_SIZES = {LIKES: torch.ones(2), LIKED: torch.ones(3), KNOWS: torch.ones(1)}  # though their sum is correct
WRONG_NODES = {"user": torch.ones(3), "item": torch.ones(2)}
REFUSED: list[Refusal] = [
    (graph_of((SOURCES,), 5), ValueError,
     r"edges must be \(sources, destinations\) or a tensor of shape \(2, E\), but "),
    (graph_of({"a:b:a": torch.tensor(5)}, {"a": 1}), ValueError, r"of shape \(2, E\), but has shape \(\)"),
    (graph_of(MANY.T, 1), ValueError, r"or a tensor of shape \(2, E\), but has shape \(1000000, 2\); transpose"),
    (graph_of((SOURCES, DESTINATIONS[:4]), 5), ValueError, "equally long, but have 5 and 4 ids"),
    (graph_of(ENDS, 4), ValueError, r"sources must be in 0 \.\. 3, but holds 4"),
    (graph_of(ENDS, -1), ValueError, "num_nodes must be 0 or more, but is -1"),
    (graph_of(TYPED, {"user": 2, "item": -3}), ValueError, r"num_nodes\['item'\] must be 0 or more, but is -3"),
    (graph_of(TYPED, {"user": 2, "item": 2}), ValueError,
     r"edges\['user:likes:item'\] \(ids of 'item'\) must be in 0 "),
    (graph_of({"user:user": (SOURCES, SOURCES)}, {"user": 5}), ValueError,
     "edges has type 'user:user'; an edge type is"),
    (graph_of({"user:x:user": (SOURCES, SOURCES[:1])}, {"user": 5}), ValueError,
     "has 5 sources and 1 destinations; gi"),
    (graph_of({}, {"user": 5}), ValueError, "edges is empty; pass an edge list for at least one edge type"),
    (graph_of(ENDS, 5.0), TypeError, "num_nodes must be an integer or a dict, but is 5.0"),
    (graph_of(ENDS, {"user": 5}), TypeError, "edges and num_nodes must both be dicts by type, or neither"),
    (graph_of({"user:x:user": (SOURCES.float(), SOURCES)}, {"user": 5}), TypeError,
     r"edges\['user:x:user'\] must be torc"),
    (graph_of(ENDS, 2**62), ValueError, f"num_nodes is {2**62}: with 8 bytes for each node that takes"),
    (graph_of(ENDS, 5, sort_by="time"), KeyError, "sort_by is 'time', but edge_attributes has"),
    (graph_of(ENDS, 5, edge_attributes={"time": torch.rand(5)}, sort_by="time"), TypeError,
     r"the values to sort by must be torch\.int64"),
    (graph_of(TYPED, COUNTS, edge_attributes={"w": WRONG_SIZES}), ValueError,
     r"edge_attributes\['w'\]\['user:likes:item'\] must have 3 rows, .*, but has 2"),
    (graph_of(TYPED, COUNTS, node_attributes={"w": WRONG_NODES}), ValueError,
     r"node_attributes\['w'\]\['user'\] must have 2 rows, .*, but has 3"),
    (graph_of(TYPED, COUNTS, edge_attributes={"w": {LIKES: torch.ones(3, 2)}}), KeyError,
     r"edge_attributes\['w'\] must have the types .*, but has \['user:likes:item'\]"),
    (graph_of(TYPED, COUNTS, edge_attributes={ORIGINAL_EDGE_ID: {LIKES: torch.arange(3)}}), KeyError,
     "must have the types"),
    (graph_of(TYPED, COUNTS, node_attributes={"w": {"user": torch.ones(2)}}), KeyError,
     r"node_attributes\['w'\] must have the types .*, but has \['user'\]"),
    (graph_of({"a:b:a": MANY}, {"a": 1}, edge_attributes={"w": LARGE}), TypeError,
     r"edge_attributes\['w'\] must be a dict by type, but is a Tensor of shape \(1000000,\) and torch.float32"),
    (graph_of(MANY, 1, edge_attributes=LARGE), TypeError,
     r"edge_attributes must be a dict, but is a Tensor of shape \(1000000,\)"),
    (graph_of(MANY, 1, edge_attributes={"w": LARGE}, sort_by=("w", LARGE)), TypeError,
     r"sort_by must be a string, but is \('w', a Tensor of shape \(1000000,\) and torch.float32\)"),
]  # fmt: skip


def test_what_is_no_graph_is_named_at_once() -> None:
    start = time.thread_time()
    check_refused(REFUSED)
    assert time.thread_time() - start < 5
