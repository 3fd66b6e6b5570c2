from typing import Any

import pytest
import torch

from graphfeed.pyg import CachedLoader, NeighborLoader
from tests.pyg.neighborhood import homogeneous, values_of


def make(num_workers: int = 0) -> NeighborLoader:
    return NeighborLoader(homogeneous(), [2], batch_size=16, shuffle=True, seed=4, num_workers=num_workers)


def epoch(loader: Any) -> list[Any]:
    return [values_of(batch) for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_epoch_is_the_first_one_of_the_loader(num_workers: int) -> None:
    with make(num_workers) as inner:
        loader = CachedLoader(inner)
        assert len(loader) == 4
        first = epoch(loader)
        assert first == epoch(make())
        assert epoch(loader) == first


def test_an_epoch_left_early_is_not_kept() -> None:
    loader = CachedLoader(make())
    next(iter(loader))
    assert len(list(loader)) == len(list(loader)) == 4


def test_clear_begins_anew() -> None:
    loader = CachedLoader(make())
    first = epoch(loader)
    loader.clear()
    assert epoch(loader) != first


def test_batches_are_transformed_and_moved_once() -> None:
    calls = []

    def count(batch: Any) -> Any:
        calls.append(batch)
        return batch

    loader = CachedLoader(make(), device="meta", transform=count)
    for _ in range(2):
        assert all(batch.x.is_meta for batch in loader)
    assert len(calls) == 4
    (batch,) = CachedLoader([(torch.ones(1), {"a": [torch.ones(2)]}, "text")], device="meta")
    assert (batch[0].is_meta, batch[1]["a"][0].is_meta, batch[2]) == (True, True, "text")
