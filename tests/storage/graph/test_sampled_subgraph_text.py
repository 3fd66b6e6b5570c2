import copy

import pytest
import torch

from graphfeed.storage import CSCFormatBase, SampledSubgraph
from tests.digests import assert_same

CSC = CSCFormatBase(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]))
IDS = torch.tensor([7, 5, 9])


def test_columns_print_their_tensors() -> None:
    assert repr(CSC) == "CSCFormatBase(indptr=tensor([0, 1, 3]),\n              indices=tensor([2, 0, 1]),\n)"


def test_details_are_the_fields_from_the_last_letter_to_the_first() -> None:
    subgraph = SampledSubgraph(CSC, IDS[:2], IDS)
    before = copy.deepcopy(subgraph)
    assert subgraph.details() == (
        "SampledSubgraph(sampled_csc=CSCFormatBase(indptr=tensor([0, 1, 3]),\n"
        "                                          indices=tensor([2, 0, 1]),\n"
        "                            ),\n"
        "                original_row_node_ids=tensor([7, 5, 9]),\n"
        "                original_edge_ids=None,\n"
        "                original_column_node_ids=tensor([7, 5]),\n"
        ")"
    )
    assert_same(subgraph, before)


def test_a_subgraph_prints_its_size() -> None:
    assert repr(SampledSubgraph(CSC, IDS[:2], IDS)) == "SampledSubgraph(rows=3, columns=2, edges=3)"
    assert repr(SampledSubgraph(CSC)) == "SampledSubgraph(columns=2, edges=3)"
    typed = SampledSubgraph({"a:b:c": CSC}, {"c": IDS[:2], "a": IDS[:0]}, {"a": IDS})
    assert repr(typed) == "SampledSubgraph(rows={'a': 3}, columns={'c': 2}, edges={'a:b:c': 3})"


def test_of_many_types_a_few_are_printed() -> None:
    subgraph = SampledSubgraph({f"a:{place}:a": CSC for place in range(38)})
    assert repr(subgraph).endswith("'a:3:a': 3, ... 34 more})")
    assert len(repr(subgraph)) < 120


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
