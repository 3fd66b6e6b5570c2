import torch

from graphfeed.pyg.stages.sample_with import permuted


def test_ids_are_those_of_the_data() -> None:
    order = torch.tensor([2, 0, 1])
    assert permuted(torch.tensor([0, 2]), order).tolist() == [2, 1]
    kind = ("a", "r", "b")
    assert permuted({kind: torch.tensor([1])}, {kind: order})[kind].tolist() == [0]
    assert permuted({kind: torch.tensor([1])}, {})[kind].tolist() == [1]
    assert permuted(None, order) is None
