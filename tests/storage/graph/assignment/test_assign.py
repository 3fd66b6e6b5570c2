from importlib.util import find_spec

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.assignment.assign import METHODS, assign_nodes, items_of_nodes, stacked_assignment
from tests.digests import assert_same
from tests.distributed import graphs

METIS = pytest.param("metis", marks=pytest.mark.skipif(find_spec("pymetis") is None, reason="pymetis is not installed"))
each_method = pytest.mark.parametrize("method", [*(name for name in METHODS if name != "metis"), METIS])


@each_method
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 250])
def test_each_node_has_one_of_the_parts(method: str, num_parts: int) -> None:
    graph = graphs.plain()
    parts = assign_nodes(graph, num_parts, method)
    assert isinstance(parts, torch.Tensor)
    assert parts.dtype == torch.int32
    assert parts.shape == (100,)
    sizes = torch.bincount(parts, minlength=num_parts)
    assert len(sizes) == num_parts
    assert int(sizes.max()) <= max(-(-100 // num_parts) * 1.05, 1)


@each_method
def test_nodes_with_types_have_parts_by_type(method: str) -> None:
    parts = assign_nodes(graphs.typed(), 3, method)
    assert isinstance(parts, dict)
    assert {kind: len(own) for kind, own in parts.items()} == graphs.COUNTS
    assert list(parts) == list(graphs.COUNTS)
    if method != "metis":
        for kind, own in parts.items():
            assert int(torch.bincount(own, minlength=3).max()) <= -(-graphs.COUNTS[kind] // 3) * 1.04


@each_method
def test_it_depends_on_the_arguments_alone(method: str) -> None:
    first, second = (assign_nodes(graphs.plain(), 4, method, seed=7) for _ in range(2))
    assert_same(first, second)


@pytest.mark.parametrize("method", ["hash", METIS])
def test_another_seed_draws_other_parts(method: str) -> None:
    graph = graphs.plain(2000, 20_000)
    first, second = (assign_nodes(graph, 4, method, seed) for seed in (0, 1))
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert not torch.equal(first, second)


@each_method
@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_tiny_graphs_have_empty_parts(method: str, num_nodes: int) -> None:
    graph = gf.from_coo(torch.zeros(2, num_nodes, dtype=torch.int64), num_nodes)
    parts = assign_nodes(graph, 3, method)
    assert len(parts) == num_nodes


def test_a_range_is_consecutive_in_each_type() -> None:
    parts = assign_nodes(graphs.typed(), 4, "range")
    assert isinstance(parts, dict)
    assert_same(parts["item"], torch.arange(4, dtype=torch.int32).repeat_interleave(10))
    assert parts["user"].tolist() == sorted(parts["user"].tolist())


def test_hashed_parts_are_near_no_others() -> None:
    parts = assign_nodes(graphs.plain(10_000, 0), 4, "hash")
    assert isinstance(parts, torch.Tensor)
    same_as_next = int((parts[1:] == parts[:-1]).sum())
    assert abs(same_as_next - 2500) < 200


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"method must be one of \['hash', 'range', 'ldg', 'metis'\], but is 'metric'"):
        assign_nodes(graphs.plain(), 2, "metric")
    with pytest.raises(ValueError, match="num_parts must be 1 or more, but is 0"):
        assign_nodes(graphs.plain(), 0)
    with pytest.raises(ValueError, match="num_parts must be at most 2147483647, as parts are int32, but is 2147483648"):
        assign_nodes(graphs.plain(), 1 << 31, "hash")
    with pytest.raises(TypeError, match="num_parts"):
        assign_nodes(graphs.plain(), 2.0)  # type: ignore[arg-type]


def test_an_assignment_is_stacked_in_the_order_of_ids() -> None:
    graph = graphs.typed()
    parts = assign_nodes(graph, 3, "hash")
    assert isinstance(parts, dict)
    backwards = dict(reversed(parts.items()))
    assert_same(stacked_assignment(graph, backwards, 3), torch.cat([parts["user"], parts["item"]]))


def test_a_wrong_assignment_is_refused() -> None:
    graph, by_type = (
        graphs.plain(),
        {kind: torch.zeros(count, dtype=torch.int32) for kind, count in graphs.COUNTS.items()},
    )
    zeros = torch.zeros(100, dtype=torch.int64)
    with pytest.raises(TypeError, match="assignment must be a tensor for this graph, but is a dict"):
        stacked_assignment(graph, by_type, 2)
    with pytest.raises(TypeError, match="assignment must be a dict by node type for this graph, but is a Tensor"):
        stacked_assignment(graphs.typed(), zeros, 2)
    with pytest.raises(KeyError, match="assignment must have the node types"):
        stacked_assignment(graphs.typed(), {"user": zeros}, 2)
    with pytest.raises(ValueError, match="assignment must have 100 values, one for each node, but has 99"):
        stacked_assignment(graph, zeros[1:], 2)
    with pytest.raises(ValueError, match=r"assignment must hold parts in 0 \.\. 1, but goes from -1 to 0"):
        stacked_assignment(graph, zeros.index_fill(0, torch.tensor([3]), -1), 2)
    with pytest.raises(TypeError, match="assignment"):
        stacked_assignment(graph, zeros.float(), 2)


def test_items_to_balance_are_nodes_of_the_graph() -> None:
    graph, typed = graphs.plain(), graphs.typed()
    items = items_of_nodes(typed, {"item": torch.tensor([0, 0, 39])})
    assert items.nonzero().flatten().tolist() == [
        typed.first_ids()[list(graphs.COUNTS).index("item")] + at for at in (0, 39)
    ]
    assert int(items.max()) == 2
    with pytest.raises(ValueError, match=r"balance must lie in 0 \.\. 99, but holds 100"):
        assign_nodes(graph, 2, balance=torch.tensor([100]))
    with pytest.raises(ValueError, match="balance needs method 'ldg', but the method is 'hash'"):
        assign_nodes(graph, 2, "hash", balance=torch.tensor([1]))
    with pytest.raises(TypeError, match="balance must be a dict by node type for this graph, but is a Tensor"):
        assign_nodes(typed, 2, balance=torch.tensor([1]))
    with pytest.raises(KeyError, match=r"balance has the node types \['car'\], but the graph has"):
        assign_nodes(typed, 2, balance={"car": torch.tensor([1])})
