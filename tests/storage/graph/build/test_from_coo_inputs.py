"""Graphs are made of what people have: arrays, lists, columns, PyG's dicts by tuple; a wrong input is named at once."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphfeed.storage import from_coo, fused_csc_sampling_graph
from tests.array_likes import AS
from tests.digests import assert_same

EDGES = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 3]])
WEIGHTS = torch.tensor([0.5, 0.25, 1.0, 0.75])
TIMES = torch.tensor([4, 3, 2, 1])
TYPED = {"user:likes:item": EDGES[:, :2] - EDGES[:, :2] // 2, "user:knows:user": EDGES[:, 2:] // 3}
COUNTS = {"user": 2, "item": 3}

each_kind = pytest.mark.parametrize("convert", AS.values(), ids=AS.keys())


@each_kind
def test_edges_and_attributes_may_be_array_likes(convert: Callable[[torch.Tensor], Any]) -> None:
    attributes = {"weight": WEIGHTS, "time": TIMES}
    expected = from_coo(EDGES, 5, node_attributes={"n": EDGES[0, [0, 1, 2, 3, 0]]}, edge_attributes=attributes)
    given = {name: convert(values) for name, values in attributes.items()}
    nodes = {"n": convert(EDGES[0, [0, 1, 2, 3, 0]])}
    for edges in (convert(EDGES), (convert(EDGES[0]), convert(EDGES[1]))):
        graph = from_coo(edges, 5, node_attributes=nodes, edge_attributes=given)
        assert_same(graph.fields(), expected.fields())
    assert_same(
        from_coo(convert(EDGES), 5, edge_attributes=given, sort_by="time").fields(),
        from_coo(EDGES, 5, edge_attributes=attributes, sort_by="time").fields(),
    )


@each_kind
def test_edges_by_type_may_have_tuples_as_keys_and_be_array_likes(convert: Callable[[torch.Tensor], Any]) -> None:
    weights = {kind: torch.arange(pair.shape[1]) for kind, pair in TYPED.items()}
    expected = from_coo(TYPED, COUNTS, edge_attributes={"w": weights})
    by_tuple = {tuple(kind.split(":")): convert(pair) for kind, pair in TYPED.items()}
    given = {tuple(kind.split(":")): convert(values) for kind, values in weights.items()}
    edges: Any = by_tuple
    graph = from_coo(edges, COUNTS, edge_attributes={"w": given})
    assert_same(graph.fields(), expected.fields())
    assert graph.edge_types == list(TYPED)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint32, torch.uint64], ids=str)
def test_ids_of_other_integers_become_int64(dtype: torch.dtype) -> None:
    graph = from_coo(EDGES.to(dtype), 5)
    assert_same(graph.indices, from_coo(EDGES, 5).indices)


def test_a_graph_without_edges_is_made_of_empty_lists() -> None:
    assert from_coo(([], []), 3).total_num_edges == 0
    assert from_coo({"a:b:a": ([], [])}, {"a": 3}).total_num_edges == 0


@each_kind
def test_columns_may_be_array_likes_and_edge_types_tuples(convert: Callable[[torch.Tensor], Any]) -> None:
    graph = from_coo(TYPED, COUNTS)
    fields = graph.fields()
    for name in ("csc_indptr", "indices", "node_type_offset", "type_per_edge"):
        fields[name] = convert(fields[name])
    fields["edge_type_to_id"] = {tuple(kind.split(":")): number for kind, number in fields["edge_type_to_id"].items()}
    again = fused_csc_sampling_graph(**fields)
    if convert is AS["list"]:
        again.type_per_edge = graph.type_per_edge
    assert_same(again.fields(), graph.fields())


def test_edge_types_are_in_the_order_of_their_numbers() -> None:
    fields = from_coo(TYPED, COUNTS).fields()
    fields["edge_type_to_id"] = dict(reversed(fields["edge_type_to_id"].items()))
    assert fused_csc_sampling_graph(**fields).edge_types == list(TYPED)


@each_kind
def test_an_attribute_is_added_as_an_array_like(convert: Callable[[torch.Tensor], Any]) -> None:
    graph = from_coo(EDGES, 5)
    graph.add_edge_attribute("w", convert(WEIGHTS))
    assert_same(graph.edge_attributes["w"], WEIGHTS)
    graph.node_attributes = {"n": convert(torch.arange(5))}
    assert_same(graph.node_attributes["n"], torch.arange(5))


LARGE = torch.zeros(1_000_000)
MANY = torch.zeros(2, 1_000_000, dtype=torch.int64)
WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    (
        "values without their types",
        lambda make: make({"a:b:a": MANY}, {"a": 1}, edge_attributes={"w": LARGE}),
        r"edge_attributes\['w'\] must be a dict by type, but is a Tensor of shape \(1000000,\) and torch.float32",
    ),
    (
        "values without their name",
        lambda make: make(MANY, 1, edge_attributes=LARGE),
        r"edge_attributes must be a dict by name, but is a Tensor of shape \(1000000,\)",
    ),
    (
        "values of nodes without their name",
        lambda make: make(MANY, 1, node_attributes=LARGE),
        r"node_attributes must be a dict by name, but is a Tensor",
    ),
    (
        "an attribute to sort by itself",
        lambda make: make(MANY, 1, edge_attributes={"w": LARGE}, sort_by=("w", LARGE)),
        r"sort_by is \('w', a Tensor of shape \(1000000,\) and torch.float32\)",
    ),
    ("edges in rows", lambda make: make(MANY.T, 1), r"tensor of shape \(2, E\), but has \(1000000, 2\)"),
    ("one row of edges", lambda make: make([LARGE], 1), r"tensor of shape \(2, E\), but has 1 parts"),
    (
        "many types in a node_type_offset",
        lambda make: fused_csc_sampling_graph(
            torch.tensor([0]), torch.tensor([], dtype=torch.int64), MANY[0], torch.tensor([]), {"a": 0}, {"a:b:a": 0}
        ),
        r"that rise from 0 to 0, but is \[0, 0, 0, 0, \.\.\. 1000000 in all\]",
    ),
]


@pytest.mark.parametrize(("give", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_argument_is_named_without_its_values_and_at_once(give: Any, message: str) -> None:
    start = time.thread_time()
    with pytest.raises((TypeError, ValueError, KeyError), match=message) as caught:
        give(from_coo)
    assert len(str(caught.value)) < 1000
    assert time.thread_time() - start < 2
