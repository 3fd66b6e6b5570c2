from typing import Any

import pytest
import torch

from graphfeed.pyg import ImbalancedSampler, NeighborLoader
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import homogeneous

PYG = import_pyg("torch_geometric.data", "tests")

LABELS = torch.tensor([0] * 90 + [2] * 9 + [5])


def test_each_class_is_as_frequent_as_any_other_and_so_is_each_of_its_members() -> None:
    torch.manual_seed(0)
    drawn = torch.tensor(list(ImbalancedSampler(LABELS, num_samples=30000)))
    counts = LABELS[drawn].bincount(minlength=6)
    assert counts[[1, 3, 4]].tolist() == [0, 0, 0]
    expected = torch.where(LABELS == 0, 10000 / 90, torch.where(LABELS == 2, 10000 / 9, 10000.0))
    chi_square = ((drawn.bincount(minlength=100) - expected) ** 2 / expected).sum()
    assert chi_square < 149  # the quantile 0.999 of 99 degrees of freedom


def test_positions_are_those_among_the_seeds_of_the_loader() -> None:
    data = homogeneous()
    data.y = (data.train_mask & (torch.arange(60) > 30)).long()
    sampler = ImbalancedSampler(data, input_nodes=data.train_mask)
    assert len(sampler) == len(list(sampler)) == int(data.train_mask.sum())
    loader = NeighborLoader(data, [1], data.train_mask, batch_size=4, sampler=sampler, seed=0)
    for batch in loader:
        assert bool(data.train_mask[batch.n_id[: batch.batch_size]].all())


def test_graphs_of_a_data_set_are_drawn_by_their_labels() -> None:
    graphs = [PYG.Data(y=torch.tensor([label])) for label in (0, 0, 1)]
    assert len(ImbalancedSampler(graphs)) == 3
    assert set(ImbalancedSampler(graphs, num_samples=50)) == {0, 1, 2}
    numbers = [PYG.Data(y=label) for label in (0, 0, 1)]
    assert set(ImbalancedSampler(numbers, num_samples=50)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.rand(3), TypeError, "whole numbers, one class each, but are torch.float32"),
        (torch.tensor([0, -1]), ValueError, "a label is -1"),
        (torch.empty(0, dtype=torch.int64), ValueError, "no labels to draw from"),
        (PYG.Data(y=torch.zeros(2, dtype=torch.int64), num_nodes=3), ValueError, "3 nodes, but 2 labels"),
        (PYG.HeteroData(), TypeError, "give its labels"),
        ([PYG.Data(x=torch.ones(1))], TypeError, "graphs with y"),
    ],
)
def test_what_can_not_be_drawn_from_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ImbalancedSampler(given)


def test_a_number_of_draws_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="num_samples must be"):
        ImbalancedSampler(LABELS, num_samples=0)
