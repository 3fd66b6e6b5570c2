from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import LinkSeeds


def turn(minibatch: gf.MiniBatch, disjoint: bool = False, triplets: bool = False) -> Any:
    result: Any
    (result,) = LinkSeeds(gf.IterableSource([minibatch]), disjoint, triplets)
    return result


def test_nodes_are_unique_and_sorted() -> None:
    result = turn(gf.MiniBatch(seeds=torch.tensor([[5, 2], [2, 9]])))
    assert result.seeds.tolist() == [2, 5, 9]
    assert result.of_seeds is not None
    assert result.of_seeds[None]["edge_label_index"].tolist() == [[1, 0], [0, 2]]
    assert result.trees is None


def test_negatives_share_the_tree_of_their_positive() -> None:
    seeds, indexes = torch.tensor([[5, 2], [2, 9], [5, 7], [2, 8]]), torch.tensor([0, 1, 0, 1])
    minibatch = gf.MiniBatch(seeds=seeds, indexes=indexes, timestamp=torch.tensor([30, 40]))
    pairs = turn(minibatch, disjoint=True)
    assert pairs.seeds.tolist() == [5, 2, 5, 2, 2, 9, 7, 8]
    assert pairs.trees.tolist() == [0, 1, 0, 1] * 2
    assert pairs.timestamp.tolist() == [30, 40, 30, 40] * 2
    triplets = turn(minibatch, disjoint=True, triplets=True)
    assert triplets.seeds.tolist() == [5, 2, 2, 9, 7, 8]
    assert triplets.of_seeds is not None
    assert triplets.of_seeds[None]["dst_neg_index"].tolist() == [4, 5]


def test_other_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="must be edges, shape"):
        turn(gf.MiniBatch(seeds=torch.arange(3)))
    pairs = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="must be edges of one type"):
        turn(gf.MiniBatch(seeds={"a:b:c": pairs, "a:d:c": pairs}))
