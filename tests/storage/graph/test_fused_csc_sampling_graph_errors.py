"""What the in-memory graph refuses: each error names the argument, what it found, and what to do."""

import re
from typing import Any

import pytest
import torch

from graphfeed.storage import fused_csc_sampling_graph
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.storage.graph.test_fused_csc_sampling_graph import ALL, INDICES, INDPTR, make_graph, make_typed_graph

METHODS = ["sample_neighbors", "sample_layer_neighbors", "in_subgraph"]

TYPES: dict[str, Any] = {
    "node_type_offset": torch.tensor([0, 2, 5]),
    "type_per_edge": torch.tensor([0, 0, 2, 2, 1, 1]),
    "node_type_to_id": {"user": 0, "item": 1},
    "edge_type_to_id": {"user:knows:user": 0, "user:likes:item": 1, "item:liked_by:user": 2},
}
TYPED_INDPTR = torch.tensor([0, 1, 4, 4, 4, 6])
TYPED_INDICES = torch.tensor([1, 0, 2, 3, 0, 1])


@pytest.mark.parametrize(
    ("error", "indptr", "indices", "message"),
    [
        (ValueError, torch.tensor([], dtype=torch.int64), INDICES, "csc_indptr must start with 0, but is []"),
        (ValueError, INDPTR + 1, INDICES, "csc_indptr must start with 0, but is [1, 4, 5]...; is it CSC?"),
        (ValueError, INDPTR, INDICES[:8], "csc_indptr must end with the number of edges, 8 (the length of indices),"),
        (ValueError, torch.tensor([0, 3, 2, 9]), INDICES, "must not fall, but goes from 3 to 2 at node 1; it holds"),
        (ValueError, INDPTR, INDICES + 1, "indices must lie in 0 .. 4, but holds 5; check the ids"),
        (ValueError, INDPTR, INDICES - 1, "indices must lie in 0 .. 4, but holds -1; check the ids"),
        (ValueError, INDPTR[None], INDICES, "csc_indptr must have 1 dimension, but has shape (1, 6)"),
        (TypeError, INDPTR.float(), INDICES, "csc_indptr must be torch.int32 or torch.int64, but is torch.float32"),
        (TypeError, INDPTR, INDICES.short(), "indices must be torch.int32 or torch.int64, but is torch.int16; convert"),
        (
            TypeError,
            "012",
            INDICES,
            "csc_indptr must be a torch.Tensor, a NumPy array, or a list of numbers or of rows",
        ),
    ],
)
def test_arrays_that_are_no_graph(error: type[Exception], indptr: Any, indices: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        fused_csc_sampling_graph(indptr, indices)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("node_type_offset", None, "a graph with types needs all of ['node_type_offset', 'type_per_edge', 'node_type"),
        ("edge_type_to_id", None, "but ['edge_type_to_id'] is None"),
        ("node_type_offset", torch.tensor([0, 5]), "must have 3 values that rise from 0 to 5, but is [0, 5]"),
        ("node_type_offset", torch.tensor([0, 2, 4]), "must have 3 values that rise from 0 to 5, but is [0, 2, 4]"),
        ("node_type_offset", torch.tensor([0, 7, 5]), "must have 3 values that rise from 0 to 5, but is [0, 7, 5]"),
        ("node_type_offset", torch.tensor([0, 3, 5]), "type_per_edge says 2 of edge 2, but that type does not join"),
        ("node_type_to_id", {"user": 1, "item": 2}, "node_type_to_id must number its types 0 .. 1, but is {'user': 1"),
        ("node_type_to_id", {"user": 0, "thing": 1}, "Unrecognized node type 'item' in 'user:likes:item'; there are"),
        ("edge_type_to_id", {"user:user": 0}, "edge_type_to_id has 'user:user'; an edge type is 'source:relation:"),
        ("edge_type_to_id", {"user:knows:user": 0, "user:likes:item": 0}, "must number its types 0 .. 1, but is {'us"),
        ("edge_type_to_id", {"user:knows:user": 0}, "type_per_edge must lie in 0 .. 0, but holds 2"),
        ("type_per_edge", torch.tensor([0]), "type_per_edge must have 6 values, one per edge, but has 1"),
        ("type_per_edge", torch.tensor([0, 0, 2, 3, 1, 1]), "type_per_edge must lie in 0 .. 2, but holds 3"),
        (
            "type_per_edge",
            torch.tensor([0, 2, 0, 2, 1, 1]),
            "must ascend inside each column, but falls at 1; sort each",
        ),
        (
            "type_per_edge",
            torch.tensor([1, 0, 2, 2, 1, 1]),
            "type_per_edge says 1 of edge 0, but that type does not jo",
        ),
        (
            "type_per_edge",
            torch.tensor([0, 0, 0, 2, 1, 1]),
            "type_per_edge says 0 of edge 2, but that type does not jo",
        ),
    ],
)
def test_types_that_do_not_agree(name: str, value: Any, message: str) -> None:
    assert fused_csc_sampling_graph(TYPED_INDPTR, TYPED_INDICES, **TYPES).total_num_edges == 6
    with pytest.raises(ValueError, match=re.escape(message)):
        fused_csc_sampling_graph(TYPED_INDPTR, TYPED_INDICES, **{**TYPES, name: value})


def test_types_of_another_dtype() -> None:
    for name in ("type_per_edge", "node_type_offset"):
        with pytest.raises(TypeError, match=rf"{name} must be .*, but is torch.float32"):
            fused_csc_sampling_graph(TYPED_INDPTR, TYPED_INDICES, **{**TYPES, name: TYPES[name].float()})


@pytest.mark.parametrize(
    ("error", "seeds", "message"),
    [
        (ValueError, torch.tensor([0, 5]), "seeds must lie in 0 .. 4, but holds 5"),
        (ValueError, torch.tensor([-1]), "seeds must lie in 0 .. 4, but holds -1"),
        (ValueError, torch.tensor([[0]]), "seeds must have 1 dimension, but has shape (1, 1)"),
        (ValueError, torch.tensor([5], dtype=torch.int32), "seeds must lie in 0 .. 4, but holds 5"),
        (TypeError, torch.tensor([0.0]), "seeds must be torch.int32 or torch.int64, but is torch.float32; convert it"),
        (TypeError, torch.tensor([True]), "seeds must be torch.int32 or torch.int64, but is torch.bool; convert it"),
        (TypeError, ["0"], "seeds must be a torch.Tensor, a NumPy array, or a list of numbers or of rows"),
        (TypeError, {"user": torch.tensor([0])}, "seeds is a dict by type, but the graph has one type; give a tensor"),
    ],
)
def test_seeds_that_are_no_nodes(error: type[Exception], seeds: Any, message: str) -> None:
    for method in METHODS:
        with pytest.raises(error, match=re.escape(message)):
            getattr(make_graph(), method)(seeds, *[ALL] * (method != "in_subgraph"))
    with pytest.raises(error, match=re.escape(message)):
        make_graph().sample_hops(seeds, SamplingRequest([ALL]), [0])


@pytest.mark.parametrize(
    ("error", "seeds", "message"),
    [
        (KeyError, {"thing": torch.tensor([0])}, "seeds have node type 'thing', but the graph has ['item', 'user']"),
        (ValueError, {"user": torch.tensor([2])}, "seeds of type 'user' must lie in 0 .. 1, but holds 2"),
        (ValueError, {"item": torch.tensor([0, -1])}, "seeds of type 'item' must lie in 0 .. 2, but holds -1"),
        (
            ValueError,
            {"user": torch.tensor([[0, 1]])},
            "seeds of type 'user' must have 1 dimension, but has shape (1, 2",
        ),
        (ValueError, {"user": torch.tensor([2]).int()}, "seeds of type 'user' must lie in 0 .. 1, but holds 2"),
        (TypeError, {"user": torch.tensor([0.0])}, "seeds of type 'user' must be torch.int32 or torch.int64, but is"),
        (
            TypeError,
            torch.tensor([0]),
            "seeds must be a dict by node type, for the graph has types ['item', 'user'], b",
        ),
    ],
)
def test_typed_seeds_that_are_no_nodes(error: type[Exception], seeds: Any, message: str) -> None:
    for method in METHODS:
        with pytest.raises(error, match=re.escape(message)):
            getattr(make_typed_graph(), method)(seeds, *[ALL] * (method != "in_subgraph"))
    with pytest.raises(error, match=re.escape(message)):
        make_typed_graph().sample_hops(seeds, SamplingRequest([ALL]), [0])


@pytest.mark.parametrize(
    ("error", "fanouts", "message"),
    [
        (ValueError, torch.tensor([-2]), "fanouts must be -1 (all neighbours) or more, but holds -2"),
        (ValueError, torch.tensor([1, 1]), "fanouts of a hop must hold 1 number, or "),
        (ValueError, torch.tensor([[1]]), "fanouts must have 1 dimension, but has shape (1, 1)"),
        (TypeError, torch.tensor([1.0]), "fanouts must be torch.int32 or torch.int64, but is torch.float32"),
        (TypeError, ["a"], "fanouts must be a torch.Tensor, a NumPy array, or a list of numbers"),
    ],
)
def test_fanouts_that_do_not_fit(error: type[Exception], fanouts: Any, message: str) -> None:
    for method in METHODS[:2]:
        with pytest.raises(error, match=re.escape(message)):
            getattr(make_graph(), method)(torch.tensor([0]), fanouts)
        with pytest.raises(error, match=re.escape(message)):
            getattr(make_typed_graph(), method)({"user": torch.tensor([0])}, fanouts)


@pytest.mark.parametrize("keys", [[1], [1, 2, 3]])
def test_each_hop_needs_a_key(keys: list[int]) -> None:
    with pytest.raises(ValueError, match=r"keys must hold 2 numbers, one per hop, but holds|zip\(\) argument 2 is"):
        make_graph().sample_hops(torch.tensor([0]), SamplingRequest([ALL, ALL]), keys)
    with pytest.raises(ValueError, match=r"keys must hold 2 numbers, one per hop, but holds|zip\(\) argument 2 is"):
        make_typed_graph().sample_hops({"user": torch.tensor([0])}, SamplingRequest([ALL, ALL]), keys)


@pytest.mark.parametrize(
    ("error", "weights", "message"),
    [
        (ValueError, torch.full((9,), -1.0), "weights must be finite and not negative, but range from -1.0 to -1.0"),
        (ValueError, torch.full((9,), torch.nan), "weights must be finite and not negative"),
        (ValueError, torch.full((9,), torch.inf), "weights must be finite and not negative"),
        (ValueError, torch.ones(9, 1), "weights must have 1 dimension, but has shape (9, 1)"),
        (TypeError, torch.ones(9, dtype=torch.int64), "weights must be torch.bool or torch.float16 or"),
    ],
)
def test_weights_that_are_none(error: type[Exception], weights: torch.Tensor, message: str) -> None:
    for method in METHODS[:2]:
        with pytest.raises(error, match=re.escape(message)):
            getattr(make_graph(w=weights), method)(torch.tensor([0]), ALL, probs_name="w")


def test_weights_that_are_unknown() -> None:
    for method in METHODS[:2]:
        with pytest.raises(KeyError, match=r"Edge attribute x does not exist; the graph has \['w'\]"):
            getattr(make_graph(w=torch.ones(9)), method)(torch.tensor([0]), ALL, probs_name="x")
    with pytest.raises(KeyError, match=r"Edge attribute x does not exist; the graph has \[\]"):
        make_typed_graph().sample_hops({"user": torch.tensor([0])}, SamplingRequest([ALL], probs_name="x"), [0])
