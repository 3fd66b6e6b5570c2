from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Peers
from graphfeed.distributed.one_machine.shared_sums import GraphWithSharedSums, SharedSums
from tests.distributed.graphs import plain


@pytest.mark.slow
def test_ranks_of_one_machine_sample_by_the_same_sums(shared: list[Any]) -> None:
    assert [found["weights"] for found in shared] == [[True, True]] * 3


def test_the_sums_are_those_of_the_graph_and_are_made_once() -> None:
    whole = plain()
    graph = GraphWithSharedSums(**whole.fields())
    graph._sums = SharedSums(Peers(), lambda: graph)
    sums = graph.cumulative_weights("weight")
    assert torch.equal(sums, whole.cumulative_weights("weight"))
    assert graph.cumulative_weights("weight") is sums
    with pytest.raises(KeyError, match="none"):
        graph.cumulative_weights("none")


@pytest.mark.parametrize(("types", "guides"), [(False, 4000), (True, 0)])
def test_guides_are_made_where_kernels_take_them(types: bool, guides: int) -> None:
    nowhere, weights = torch.zeros(2, 4000, dtype=torch.int64), 1 / torch.linspace(1e-6, 1, 4000)
    made = (
        gf.from_coo({"a:to:a": nowhere}, {"a": 1}, edge_attributes={"w": {"a:to:a": weights}})
        if types
        else gf.from_coo(nowhere, 1, edge_attributes={"w": weights})
    )
    graph = GraphWithSharedSums(**made.fields())
    graph._sums = SharedSums(Peers(), lambda: graph)
    assert graph.guided_sums("w").cumulative.numel() == 4000
    assert graph.guided_sums("w").guides.numel() == guides
