"""The arrays of a graph in memory; errors of its constructor are in `test_refusals.py`."""

import gc
import pickle
from typing import Any

import pytest
import torch

from graphfeed.storage import CSCFormatBase, fused_csc_sampling_graph
from graphfeed.storage.memory import tensors_in
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused
from tests.kinds.small_graphs import ALL, INDICES, INDPTR, make_graph, make_typed_graph
from tests.stand_ins.garbage import AtItsEnd, ends
from tests.stand_ins.locked_memory import LockedMemory


def test_arrays_are_not_copied() -> None:
    graph = make_graph()
    assert graph.csc_indptr is INDPTR
    assert graph.indices is INDICES


def test_arrays_can_be_set_to_what_is_a_graph() -> None:
    graph = make_graph(w=torch.ones(9))
    graph.indices = torch.zeros(9, dtype=torch.int32)
    graph.csc_indptr = torch.tensor([0, 9, 9, 9, 9, 9], dtype=torch.int32)
    hop = graph.sample_neighbors(torch.tensor([0], dtype=torch.int32), ALL)
    assert_same(hop.sampled_csc, CSCFormatBase(torch.tensor([0, 9]).int(), torch.zeros(9, dtype=torch.int32)))
    typed = make_typed_graph()
    typed.type_per_edge = torch.tensor([0, 0, 2, 2, 1, 1])
    typed.node_type_offset = torch.tensor([0, 2, 5]).int()
    typed.node_type_to_id = {"user": 0, "item": 1}
    typed.edge_type_to_id = {"user:follows:user": 0, "user:likes:item": 1, "item:liked_by:user": 2}
    assert typed.num_edges == {"user:follows:user": 2, "user:likes:item": 2, "item:liked_by:user": 2}


NO_GRAPHS: list[tuple[str, Any, str]] = [
    ("indices", INDICES[:8], "csc_indptr must end with the number of edges, 8"),
    ("indices", INDICES + 1, "indices must be in 0 .. 4"),
    ("csc_indptr", INDPTR[:-1], "csc_indptr must end with the number of edges, 9"),
    ("csc_indptr", torch.tensor([0, 9]), "indices must be in 0 .. 0"),
    ("csc_indptr", torch.tensor([0, 3, 4, 4, 8, 8, 9]), r"node_attributes\['age'\] must have 6 rows"),
    ("type_per_edge", torch.zeros(9), "a graph with types needs all of"),
    ("node_attributes", {"age": torch.ones(4)}, r"node_attributes\['age'\] must have 5 rows, one for each node"),
    ("edge_attributes", {"w": torch.ones(4)}, r"edge_attributes\['w'\] must have 9 rows, one for each edge"),
]


def test_what_makes_no_graph_is_refused_and_changes_nothing() -> None:
    graph = fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"age": torch.ones(5)})
    before = graph.fields()
    for name, value, words in NO_GRAPHS:
        with pytest.raises(ValueError, match=words) as caught:
            setattr(graph, name, value)
        assert caught.value.__notes__ == [f"the graph keeps its {name}; to change arrays together, build another graph"]
        assert_same(graph.fields(), before)


def test_attributes_are_found_by_name_and_added_one_by_one_or_set_all() -> None:
    weights, ages = torch.ones(9), torch.ones(5, 2)
    graph = fused_csc_sampling_graph(INDPTR, INDICES, node_attributes={"age": ages}, edge_attributes={"w": weights})
    assert graph.edge_attribute("w") is weights
    assert graph.node_attributes["age"] is graph.node_attribute("age") is ages
    graph.add_node_attribute("born", ages[:, 0])
    graph.add_edge_attribute("w", weights * 2)
    assert list(graph.node_attributes) == ["age", "born"]
    assert_same(graph.edge_attribute("w"), weights * 2)
    check_refused([
        (lambda: graph.edge_attribute("age"), KeyError, r"Edge attribute age does not exist; the graph has \['w'\]"),
        (lambda: graph.node_attribute("w"), KeyError, r"Node attribute w does not exist; the graph has \['age'"),
    ])  # fmt: skip
    graph.edge_attributes = {"v": weights}
    assert list(graph.edge_attributes) == ["v"]
    graph.edge_attributes = None  # type: ignore[assignment]  # as GraphBolt takes it
    assert dict(graph.edge_attributes) == {}
    with pytest.raises(TypeError, match="does not support item assignment"):
        graph.node_attributes["age"] = torch.ones(3)  # type: ignore[index]


def test_new_arrays_make_the_weights_anew() -> None:
    graph = make_graph(w=torch.tensor([1.0, 0, 0, 1, 1, 0, 0, 0, 1]))
    seeds, fanouts = torch.tensor([1]), torch.tensor([-1])
    assert_same(graph.sample_neighbors(seeds, fanouts, probs_name="w").original_edge_ids, torch.tensor([3]))
    graph.csc_indptr = torch.tensor([0, 0, 9, 9, 9, 9])
    eligible = torch.tensor([0, 3, 4, 8])
    assert_same(graph.sample_neighbors(seeds, fanouts, probs_name="w").original_edge_ids, eligible)


def test_attributes_leave_what_was_made_of_others() -> None:
    graph = make_graph(w=torch.ones(9))
    made = graph.cumulative_weights("w")
    graph.add_edge_attribute("v", torch.ones(9))
    graph.add_node_attribute("age", torch.ones(5))
    assert graph.cumulative_weights("w") is made
    graph.indices = graph.indices.clone()
    assert graph.cumulative_weights("w") is not made


def test_every_array_is_pinned_and_so_is_what_is_made_of_them() -> None:
    graph = make_typed_graph(w=torch.rand(6))
    before = graph.cumulative_weights("w")
    with LockedMemory().installed() as memory:
        graph.pin_memory_()
        assert all(memory.holds_all(part) for part in tensors_in(vars(graph)))
        assert torch.equal(graph.cumulative_weights("w"), before)
        graph.add_edge_attribute("v", torch.rand(6))
        assert memory.holds_all(graph.cumulative_weights("v"))


def test_a_graph_in_shared_memory_is_pinned_there_and_stays_there() -> None:
    graph = make_typed_graph(w=torch.rand(6), large=torch.zeros(6, 2000))
    handle = pickle.dumps(graph)
    arrays = list(tensors_in(graph.fields()))
    with LockedMemory().installed() as memory:
        graph.pin_memory_()
        assert len(memory.locked) == 1  # arrays without values need no memory
        assert all(mine is before for mine, before in zip(tensors_in(graph.fields()), arrays, strict=True))
        assert pickle.dumps(graph) == handle
        del graph
        gc.collect()
        assert memory.locked == {}


@pytest.mark.gpu
def test_a_pinned_graph_is_released_when_it_dies() -> None:
    graph = make_typed_graph(w=torch.rand(6), large=torch.zeros(6, 2000))
    pickle.dumps(graph)
    arrays = list(tensors_in(graph.fields()))
    graph.pin_memory_()
    assert all(tensor.is_pinned() for tensor in arrays)
    del graph
    gc.collect()
    assert not any(tensor.is_pinned() for tensor in arrays)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_pinning_without_a_device_is_one_error() -> None:
    with pytest.raises(RuntimeError, match=r"pin_memory_ needs a CUDA device .*; leave it out"):
        make_graph().pin_memory_()


def test_a_finalizer_derives_arrays_while_arrays_are_derived() -> None:
    first, other = make_graph(), make_graph()
    derived: list[torch.Tensor] = []

    def derive(graph: Any) -> None:
        derived.append(graph.cached("in-degrees", (INDPTR,), lambda: (INDPTR.diff(),))[0])

    def derive_after_collecting() -> tuple[torch.Tensor]:
        AtItsEnd(lambda: derive(other))
        gc.collect()
        return (INDPTR.diff(),)

    assert ends(lambda: first.cached("in-degrees", (INDPTR,), derive_after_collecting))
    assert_same(derived, [INDPTR.diff()])
