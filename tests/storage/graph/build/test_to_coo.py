"""Edge lists of graphs are those that graphs were made of."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph.build.to_coo import to_coo
from tests.digests import assert_same

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


def as_ends(pairs: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([pair[0] for pair in pairs]).long(), torch.tensor([pair[1] for pair in pairs]).long()


@given(PAIRS)
def test_edges_come_back_in_their_order(pairs: list[tuple[int, int]]) -> None:
    ends = as_ends(pairs)
    graph = from_coo(ends, 4, edge_attributes={"row": torch.arange(len(pairs))})
    found = to_coo(graph)[None]
    assert_same((found.sources, found.destinations), ends)
    assert_same(graph.edge_attributes["row"][found.positions], torch.arange(len(pairs)))


@given(PAIRS, PAIRS)
def test_edges_of_types_come_back_with_the_ids_of_their_types(
    likes: list[tuple[int, int]], knows: list[tuple[int, int]]
) -> None:
    edges = {"user:likes:item": as_ends(likes), "user:knows:user": as_ends(knows)}
    found = to_coo(from_coo(edges, {"item": 4, "user": 4}))
    assert list(found) == list(edges)
    for kind, ends in edges.items():
        assert_same((found[kind].sources, found[kind].destinations), ends)


def test_without_ids_edges_are_in_the_order_of_the_graph() -> None:
    found = to_coo(fused_csc_sampling_graph(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0])))[None]
    assert found.sources.tolist() == [1, 2, 0]
    assert found.destinations.tolist() == [0, 0, 2]
    assert found.positions.tolist() == [0, 1, 2]


def test_node_types_may_come_in_another_order_than_their_ids() -> None:
    arrays = from_coo({"a:r:b": ([0, 1], [1, 2])}, {"a": 2, "b": 3}).fields()
    graph = fused_csc_sampling_graph(**arrays | {"node_type_to_id": {"b": 1, "a": 0}})
    found = to_coo(graph)["a:r:b"]
    assert found.sources.tolist() == [0, 1]
    assert found.destinations.tolist() == [1, 2]
