from typing import Any

import pytest
import torch

from graphfeed.distributed import Peers
from graphfeed.distributed.shared_sums import GraphWithSharedSums, SharedSums
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
