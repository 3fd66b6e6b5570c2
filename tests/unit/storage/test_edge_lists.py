"""Edge lists: those from which a graph was built, and with the reverse of each edge."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import from_coo, fused_csc_sampling_graph
from graphfeed.storage.graph import to_coo
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

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


EDGES = torch.tensor([[0, 1], [2, 3]])
SWAPPED = torch.tensor([[1, 0], [3, 2]])
NONE = torch.empty(0, 2, dtype=torch.int64)


def test_edges_are_followed_by_their_reverse() -> None:
    assert_same(gf.add_reverse_edges(EDGES), torch.cat([EDGES, SWAPPED]))
    assert_same(gf.add_reverse_edges(EDGES.int()), torch.cat([EDGES, SWAPPED]).int())
    assert_same(gf.add_reverse_edges(NONE), NONE)


def test_reverse_edges_go_to_their_own_type() -> None:
    edges = {"user:likes:item": EDGES, "item:liked_by:user": EDGES + 10}
    result = gf.add_reverse_edges(edges, {"user:likes:item": "item:liked_by:user"})
    assert_same(result, {"user:likes:item": EDGES, "item:liked_by:user": torch.cat([EDGES + 10, SWAPPED])})
    assert list(edges) == ["user:likes:item", "item:liked_by:user"]
    assert_same(edges["item:liked_by:user"], EDGES + 10)


def test_a_reverse_type_is_made_where_there_is_none() -> None:
    result = gf.add_reverse_edges(
        {"user:likes:item": EDGES}, {"user:likes:item": "item:liked_by:user", "a:b:c": "c:d:a"}
    )
    assert_same(result, {"user:likes:item": EDGES, "item:liked_by:user": SWAPPED})


def test_a_type_may_be_its_own_reverse_and_two_each_others() -> None:
    assert_same(gf.add_reverse_edges({"a:r:a": EDGES}, {"a:r:a": "a:r:a"}), {"a:r:a": torch.cat([EDGES, SWAPPED])})
    both = gf.add_reverse_edges({"a:r:b": EDGES, "b:s:a": EDGES + 10}, {"a:r:b": "b:s:a", "b:s:a": "a:r:b"})
    assert_same(both, {"a:r:b": torch.cat([EDGES, SWAPPED + 10]), "b:s:a": torch.cat([EDGES + 10, SWAPPED])})


def test_without_a_mapping_nothing_is_added() -> None:
    edges = {"a:r:b": EDGES}
    result = gf.add_reverse_edges(edges)
    assert result is not edges
    assert_same(result, edges)


REVERSE = {"a:r:b": "b:s:a"}
REFUSED: list[Refusal] = [
    (lambda: gf.add_reverse_edges(torch.arange(3)), ValueError, r"Only tensor with shape N\*2 is supported now, but e"),
    (lambda: gf.add_reverse_edges(torch.zeros(2, 3)), ValueError,
     r"Only tensor with shape N\*2 is .*, but edges has \["),
    (lambda: gf.add_reverse_edges({"a:r:b": torch.arange(3)}, REVERSE), ValueError,
     r"Only tensor with shape N\*2 is supported now, but edges\['a:r:b'\] has \[3\]"),
    (lambda: gf.add_reverse_edges(EDGES, REVERSE), TypeError,
     "reverse_etypes_mapping is for edges by type, but edges is a tensor; leave it"),
]  # fmt: skip


def test_what_has_no_reverse_is_named() -> None:
    check_refused(REFUSED)
