import pytest
import torch

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda


@pytest.mark.parametrize("wrong", [-1, 3])
def test_seeds_that_are_no_nodes_are_named(cuda: Cuda, wrong: int) -> None:
    with cuda.running():
        graph = ops.HopGraph(cuda.put(torch.tensor([0, 1, 3, 3])), cuda.put(torch.tensor([2, 0, 1])))
        with pytest.raises(ValueError, match=f"seeds must lie in 0 .. 2, but holds {wrong}"):
            ops.sample_hops(graph, cuda.put(torch.tensor([0, wrong, 1])), [2, -1, 3], [1, 2, 3])
