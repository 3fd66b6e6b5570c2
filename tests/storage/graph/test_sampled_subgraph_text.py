import copy

import pytest
import torch

from graphfeed.storage import CSCFormatBase, SampledSubgraph
from tests.digests import assert_same

CSC = CSCFormatBase(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]))
IDS = torch.tensor([7, 5, 9])


def test_columns_print_their_tensors() -> None:
    assert repr(CSC) == "CSCFormatBase(indptr=tensor([0, 1, 3]),\n              indices=tensor([2, 0, 1]),\n)"


def test_a_subgraph_prints_its_fields_from_the_last_letter_to_the_first() -> None:
    subgraph = SampledSubgraph(CSC, IDS[:2], IDS)
    before = copy.deepcopy(subgraph)
    assert repr(subgraph) == (
        "SampledSubgraph(sampled_csc=CSCFormatBase(indptr=tensor([0, 1, 3]),\n"
        "                                          indices=tensor([2, 0, 1]),\n"
        "                            ),\n"
        "                original_row_node_ids=tensor([7, 5, 9]),\n"
        "                original_edge_ids=None,\n"
        "                original_column_node_ids=tensor([7, 5]),\n"
        ")"
    )
    assert_same(subgraph, before)


def test_memory_that_is_not_pinned() -> None:
    assert not CSC.is_pinned()
    assert not SampledSubgraph({"a:b:c": CSC}, {"c": IDS}).is_pinned()


@pytest.mark.gpu
def test_pinned_copies() -> None:
    subgraph = SampledSubgraph({"a:b:c": CSC}, {"c": IDS[:2]}, {"a": IDS})
    pinned = subgraph.pin_memory()
    assert pinned.is_pinned()
    assert not subgraph.is_pinned()
    assert_same(pinned, subgraph)
    assert CSC.pin_memory().is_pinned()
