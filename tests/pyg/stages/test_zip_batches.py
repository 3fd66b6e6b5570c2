from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ItemSampler, ItemSet
from graphfeed.pyg import ItemsAt, ZipBatches


def test_it_is_as_long_as_the_shortest_pipeline() -> None:
    pipes = tuple(ItemSampler(ItemSet(count, names="seeds"), 2) for count in (5, 4))
    joined = ZipBatches(pipes)
    assert len(joined) == 2
    found = [[batch.seeds.tolist() for batch in batches] for batches in joined]
    assert found == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]


def test_no_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match="datapipes is empty"):
        ZipBatches(())


def test_items_are_those_at_the_positions_and_the_key_stays() -> None:
    items = gf.ItemSet((torch.arange(10, 20), torch.arange(5, 15)), names=("seeds", "labels"))
    source = gf.ItemSampler(gf.ItemSet([3, 0, 9], names="seeds"), 2)
    batches: Any = list(ItemsAt(source, items, gf.minibatcher_default))
    assert [batch.seeds.tolist() for batch in batches] == [[13, 10], [19]]
    assert [batch.labels.tolist() for batch in batches] == [[8, 5], [14]]
    assert [batch.key.index for batch in batches] == [0, 1]
