import pytest
import torch

from graphfeed.datapipes.sources.seeds import node_seeds, timed_node_seeds
from tests.digests import assert_same

NONE = torch.tensor([], dtype=torch.int64)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ends_of_edges_are_taken_once_row_by_row(dtype: torch.dtype) -> None:
    nodes, compacted = node_seeds(torch.tensor([[5, 2], [2, 9], [5, 5]], dtype=dtype))
    assert_same(nodes, torch.tensor([5, 2, 9], dtype=dtype))
    assert_same(compacted, torch.tensor([[0, 1], [1, 2], [0, 0]], dtype=dtype))


def test_hyperlinks_have_any_number_of_ends() -> None:
    nodes, compacted = node_seeds(torch.tensor([[4, 3, 4], [1, 3, 0]]))
    assert_same(nodes, torch.tensor([4, 3, 1, 0]))
    assert_same(compacted, torch.tensor([[0, 1, 0], [2, 1, 3]]))


def test_edge_types_are_gone_through_in_turn() -> None:
    seeds = {
        "user:likes:item": torch.tensor([[1, 8], [2, 9]]),
        "item:liked_by:user": torch.tensor([[9, 3], [7, 1]]),
    }
    nodes, compacted = node_seeds(seeds)
    assert_same(nodes, {"user": torch.tensor([1, 2, 3]), "item": torch.tensor([8, 9, 7])})
    assert_same(
        compacted,
        {
            "user:likes:item": torch.tensor([[0, 0], [1, 1]]),
            "item:liked_by:user": torch.tensor([[1, 2], [2, 0]]),
        },
    )


def test_typed_hyperlinks_name_the_type_of_each_end() -> None:
    nodes, compacted = node_seeds({"user:item:user:shop": torch.tensor([[1, 8, 2, 0], [2, 8, 1, 0]])})
    assert_same(nodes, {"user": torch.tensor([1, 2]), "item": torch.tensor([8]), "shop": torch.tensor([0])})
    assert_same(compacted, {"user:item:user:shop": torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0]])})


def test_there_may_be_no_seeds() -> None:
    assert_same(node_seeds({}), ({}, None))
    assert_same(node_seeds(NONE.reshape(0, 2)), (NONE, NONE.reshape(0, 2)))
    typed = {"user:likes:item": NONE.reshape(0, 2)}
    assert_same(node_seeds(typed), ({"user": NONE, "item": NONE}, typed))


def times(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def test_timed_nodes_stay_as_they_are() -> None:
    seeds = torch.tensor([3, 0, 3])
    nodes, compacted, own = timed_node_seeds(seeds, times(7, 8, 9))
    assert nodes is seeds
    assert compacted is None
    assert_same(own, times(7, 8, 9))
    by_type = {"user": seeds}
    assert timed_node_seeds(by_type, {"user": times(7, 8, 9)})[:2] == (by_type, None)


def test_both_ends_of_a_timed_edge_have_its_time_and_no_two_are_merged() -> None:
    nodes, compacted, own = timed_node_seeds(torch.tensor([[0, 1], [0, 3]]), times(100, 200))
    assert_same(nodes, torch.tensor([0, 1, 0, 3]))
    assert_same(compacted, torch.tensor([[0, 1], [2, 3]]))
    assert_same(own, times(100, 100, 200, 200))


def test_negatives_have_the_time_of_their_edge() -> None:
    seeds = torch.tensor([[0, 1], [2, 3], [0, 7], [0, 8], [2, 5], [2, 6]])
    nodes, _, own = timed_node_seeds(seeds, times(100, 200))
    assert_same(nodes, seeds.reshape(-1))
    assert_same(own, times(100, 200, 100, 100, 200, 200).repeat_interleave(2))


def test_timed_edges_of_several_types() -> None:
    seeds = {"a:r:b": torch.tensor([[0, 1], [2, 3]]), "a:s:a": torch.tensor([[0, 5]])}
    nodes, compacted, own = timed_node_seeds(seeds, {"a:r:b": times(10, 20), "a:s:a": times(30)})
    assert_same(nodes, {"a": torch.tensor([0, 2, 0, 5]), "b": torch.tensor([1, 3])})
    assert_same(compacted, {"a:r:b": torch.tensor([[0, 0], [1, 1]]), "a:s:a": torch.tensor([[2, 3]])})
    assert_same(own, {"a": times(10, 20, 30, 30), "b": times(10, 20)})


def test_each_end_of_an_edge_may_have_a_time_of_its_own() -> None:
    seeds, own = torch.tensor([[0, 1], [2, 3], [0, 7], [2, 8]]), torch.tensor([[10, 11], [20, 21]])
    nodes, compacted, found = timed_node_seeds(seeds, own)
    assert_same(nodes, seeds.reshape(-1))
    assert_same(compacted, torch.arange(8).reshape(4, 2))
    assert_same(found, times(10, 11, 20, 21, 10, 11, 20, 21))
    typed = timed_node_seeds({"a:r:b": seeds}, {"a:r:b": own})
    assert_same(typed[2], {"a": times(10, 20, 10, 20), "b": times(11, 21, 11, 21)})
