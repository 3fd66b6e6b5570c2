import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import NumNeighbors
from graphfeed.pyg.neighborhoods import Neighborhoods


def graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(([1, 2], [0, 0]), 3)


def test_numbers_are_turned_around() -> None:
    assert Neighborhoods(graph(), [3, 2, -1]).fanouts == [-1, 2, 3]
    assert Neighborhoods(graph(), NumNeighbors([3, 2])).fanouts == [2, 3]
    typed = gf.from_coo({"a:r:b": ([0], [0]), "b:s:a": ([0], [0])}, {"a": 1, "b": 1})
    assert Neighborhoods(typed, [3, 2]).fanouts == {"a:r:b": [2, 3], "b:s:a": [2, 3]}
    with pytest.raises(ValueError, match="num_neighbors is a dict by edge type, but data has no types"):
        _ = Neighborhoods(graph(), {("a", "r", "b"): [3]}).fanouts


def test_any_graph_of_this_package_may_be_sampled() -> None:
    pipe = gf.ItemSampler(gf.ItemSet((torch.tensor([0]),) * 2, names=("seeds", "input_id")), 1)
    output = next(iter(Neighborhoods(graph(), [-1]).append_to(pipe))).output
    assert output.node.tolist() == [0, 1, 2]
    assert output.num_sampled_nodes == [1, 2]
