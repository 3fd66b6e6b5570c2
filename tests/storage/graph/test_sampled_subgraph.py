import copy
import pickle
from typing import Any

import pytest
import torch

from graphfeed.storage import CSCFormatBase, SampledSubgraph
from tests.digests import assert_same

INDPTR = torch.tensor([0, 1, 3])
INDICES = torch.tensor([2, 0, 1])


def homogeneous() -> SampledSubgraph:
    ids = torch.tensor([7, 5, 9])
    return SampledSubgraph(CSCFormatBase(INDPTR, INDICES), ids[:2], ids, torch.tensor([3, 0, 4]))


def typed() -> SampledSubgraph:
    ids = {"user": torch.tensor([7, 5, 9]), "item": torch.tensor([1])}
    csc = {"user:likes:user": CSCFormatBase(INDPTR, INDICES)}
    return SampledSubgraph(csc, {"user": ids["user"][:2], "item": ids["item"]}, ids, {"user:likes:user": INDICES})


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return all tensors inside of a subgraph."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else vars(value).values()
    return [tensor for part in parts for tensor in tensors_of(part)]


def test_columns_must_end_where_the_indices_do() -> None:
    with pytest.raises(ValueError, match=r"indptr must end with the number of edges, 3 .*, but ends with 2"):
        CSCFormatBase(torch.tensor([0, 2]), INDICES)
    assert len(CSCFormatBase(torch.tensor([0, 0]), INDICES[:0]).indices) == 0


def test_only_the_edges_are_needed() -> None:
    subgraph = SampledSubgraph(CSCFormatBase(INDPTR, INDICES))
    assert subgraph.original_column_node_ids is None
    assert subgraph.original_row_node_ids is None
    assert subgraph.original_edge_ids is None
    assert subgraph.to("cpu").original_edge_ids is None


@pytest.mark.parametrize("make", [homogeneous, typed])
def test_all_tensors_go_to_the_device_and_the_given_one_stays(make: Any) -> None:
    subgraph = make()
    before = copy.deepcopy(subgraph)
    moved = subgraph.to("meta")
    assert {tensor.device.type for tensor in tensors_of(moved)} == {"meta"}
    assert_same(subgraph, before)
    assert_same(subgraph.to("cpu"), before)


@pytest.mark.gpu
def test_moving_to_pinned_memory() -> None:
    assert all(tensor.is_pinned() for tensor in tensors_of(homogeneous().to("pinned")))


@pytest.mark.parametrize("make", [homogeneous, typed])
def test_subgraphs_pickle_and_print(make: Any) -> None:
    assert_same(pickle.loads(pickle.dumps(make())), make())
    assert "indptr=tensor([0, 1, 3])" in make().details()
