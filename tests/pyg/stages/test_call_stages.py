from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

import graphfeed as gf
from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.pyg.stages.call_stages import call_stages


def doubled(minibatch: Any) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=2 * minibatch.seeds)


def raised(minibatch: Any) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=minibatch.seeds + 1)


def called(seeds: list[int]) -> list[int]:
    pipe = IterableSource([]).transform(doubled).transform(raised)
    found: list[int] = call_stages(pipe, gf.MiniBatch(seeds=torch.tensor(seeds))).seeds.tolist()
    return found


def test_the_stages_are_called_in_order() -> None:
    assert called([1, 5]) == [3, 11]


def in_worker(seeds: list[int]) -> tuple[int, list[int]]:
    info = get_worker_info()
    assert info is not None
    return info.id, called(seeds)


@pytest.mark.slow
def test_each_worker_of_torchs_loader_has_the_mini_batch() -> None:
    seeds: Any = [1, 5]
    loader = DataLoader(seeds, num_workers=2, collate_fn=in_worker)
    assert list(loader) == [(0, [3]), (1, [11])]
