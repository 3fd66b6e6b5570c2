"""Edges without some: all that join a pair go, and what is not asked for stays."""

import copy
from typing import Any

import pytest
import torch

from graphfeed.storage import CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.layer_data import edge_index
from tests.digests import assert_same

ETYPE = "user:likes:item"


def homogeneous() -> SampledSubgraph:
    """Edges 11 -> 10, 10 -> 11, 12 -> 11, 12 -> 11, with ids 5, 6, 7, 8."""
    ids = torch.tensor([10, 11, 12])
    csc = CSCFormatBase(torch.tensor([0, 1, 4]), torch.tensor([1, 0, 2, 2]))
    return SampledSubgraph(csc, ids[:2], ids, torch.tensor([5, 6, 7, 8]))


def typed() -> SampledSubgraph:
    one = homogeneous()
    assert isinstance(one.sampled_csc, CSCFormatBase)
    assert isinstance(one.original_edge_ids, torch.Tensor)
    csc = {ETYPE: one.sampled_csc, "item:liked_by:user": CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))}
    rows = {"user": torch.tensor([10, 11, 12]), "item": torch.tensor([20, 21])}
    columns = {"user": torch.tensor([10]), "item": torch.tensor([20, 21])}
    return SampledSubgraph(csc, columns, rows, {ETYPE: one.original_edge_ids, "item:liked_by:user": torch.tensor([9])})


def edges_of(subgraph: SampledSubgraph) -> list[tuple[int, int, int]]:
    """Return source, destination and id of each edge."""
    assert isinstance(subgraph.sampled_csc, CSCFormatBase)
    rows, columns, ids = subgraph.original_row_node_ids, subgraph.original_column_node_ids, subgraph.original_edge_ids
    assert isinstance(rows, torch.Tensor)
    assert isinstance(columns, torch.Tensor)
    assert isinstance(ids, torch.Tensor)
    sources, destinations = edge_index(subgraph.sampled_csc)
    return list(zip(rows[sources].tolist(), columns[destinations].tolist(), ids.tolist(), strict=True))


def test_every_edge_that_joins_a_pair_goes() -> None:
    subgraph = homogeneous()
    before = copy.deepcopy(subgraph)
    result = subgraph.exclude_edges(torch.tensor([[12, 11], [11, 10], [10, 10]]))
    assert edges_of(result) == [(10, 11, 6)]
    assert_same(result.sampled_csc, CSCFormatBase(torch.tensor([0, 0, 1]), torch.tensor([0])))
    assert result.original_row_node_ids is subgraph.original_row_node_ids
    assert result.original_column_node_ids is subgraph.original_column_node_ids
    assert_same(subgraph, before)


def test_nothing_to_exclude_and_nothing_left() -> None:
    subgraph = homogeneous()
    assert_same(subgraph.exclude_edges(torch.empty(0, 2, dtype=torch.int64)), subgraph)
    everything = torch.tensor([[source, destination] for source, destination, _ in edges_of(subgraph)])
    empty = subgraph.exclude_edges(everything)
    assert edges_of(empty) == []
    assert edges_of(empty.exclude_edges(everything)) == []


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_dtypes_stay(dtype: torch.dtype) -> None:
    ids = torch.arange(3, dtype=dtype)
    csc = CSCFormatBase(torch.tensor([0, 2], dtype=dtype), torch.tensor([1, 2], dtype=dtype))
    result = SampledSubgraph(csc, ids[:1], ids, ids[1:]).exclude_edges(torch.tensor([[1, 0]]))
    assert_same(result.sampled_csc, CSCFormatBase(torch.tensor([0, 1], dtype=dtype), torch.tensor([2], dtype=dtype)))
    assert_same(result.original_edge_ids, ids[2:])


def test_without_ids_positions_are_ids() -> None:
    csc = CSCFormatBase(torch.tensor([0, 2, 3]), torch.tensor([5, 6, 5]))
    result = SampledSubgraph(csc).exclude_edges(torch.tensor([[5, 1]]))
    assert_same(result, SampledSubgraph(CSCFormatBase(torch.tensor([0, 2, 2]), torch.tensor([5, 6]))))


def test_a_type_that_is_not_named_is_kept_whole() -> None:
    subgraph = typed()
    result = subgraph.exclude_edges({ETYPE: torch.tensor([[12, 21], [10, 10]]), "no:such:type": torch.tensor([[0, 0]])})
    csc, ids = result.sampled_csc, result.original_edge_ids
    assert isinstance(csc, dict)
    assert isinstance(ids, dict)
    assert_same(csc[ETYPE], CSCFormatBase(torch.tensor([0, 1, 2]), torch.tensor([1, 0])))
    assert_same(ids[ETYPE], torch.tensor([5, 6]))
    assert isinstance(subgraph.sampled_csc, dict)
    assert csc["item:liked_by:user"] is subgraph.sampled_csc["item:liked_by:user"]
    assert_same(subgraph, typed())


def test_asynchronously_there_is_something_to_wait_for() -> None:
    pairs = {"item:liked_by:user": torch.tensor([[20, 10]])}
    assert_same(typed().exclude_edges(pairs, async_op=True).wait(), typed().exclude_edges(pairs))


def test_a_subclass_stays_one() -> None:
    class Mine(SampledSubgraph):
        pass

    one = homogeneous()
    assert type(Mine(one.sampled_csc).exclude_edges(torch.tensor([[0, 0]]))) is Mine


def test_edges_may_be_arrays_and_edge_types_tuples() -> None:
    pairs = torch.tensor([[11, 10], [12, 11]])
    expected: Any = homogeneous().exclude_edges(pairs)
    array: Any = pairs.numpy()
    assert_same(vars(homogeneous().exclude_edges(array)), vars(expected))
    given: Any = {("user", "likes", "item"): pairs[:1].tolist()}
    assert_same(vars(typed().exclude_edges(given)), vars(typed().exclude_edges({ETYPE: pairs[:1]})))
