from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.digests import assert_same

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


def test_what_does_not_fit_is_named() -> None:
    wrong: Any
    for wrong in (torch.arange(3), torch.zeros(2, 3)):
        with pytest.raises(ValueError, match=r"Only tensor with shape N\*2 is supported now, but edges has \["):
            gf.add_reverse_edges(wrong)
    with pytest.raises(
        ValueError, match=r"Only tensor with shape N\*2 is supported now, but edges\['a:r:b'\] has \[3\]"
    ):
        gf.add_reverse_edges({"a:r:b": torch.arange(3)}, {"a:r:b": "b:s:a"})
    with pytest.raises(TypeError, match="reverse_etypes_mapping is for edges by type, but edges is a tensor; leave it"):
        gf.add_reverse_edges(EDGES, {"a:r:b": "b:s:a"})


def test_edges_may_be_arrays_and_edge_types_tuples() -> None:
    pairs = torch.tensor([[0, 1], [2, 3]])
    given: Any = pairs.numpy()
    assert_same(gf.add_reverse_edges(given), gf.add_reverse_edges(pairs))
    likes, liked = ("user", "likes", "item"), ("item", "liked_by", "user")
    mapping: Any = {likes: liked}
    typed: Any = {likes: pairs.tolist()}
    expected = gf.add_reverse_edges({"user:likes:item": pairs}, {"user:likes:item": "item:liked_by:user"})
    assert_same(gf.add_reverse_edges(typed, mapping), expected)
