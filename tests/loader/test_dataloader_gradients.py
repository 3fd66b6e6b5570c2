"""A tensor that requires gradients reaches the loop as it is, or an error says that it can't."""

import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf


def compute(minibatch: Any) -> Any:
    minibatch.labels = torch.ones(2, requires_grad=True) * 2
    return minibatch


def loader_of(items: gf.ItemSet, stage: Any, worker: str) -> gf.DataLoader:
    return gf.DataLoader(gf.ItemSampler(items, 2).transform(stage), num_workers=1, worker=worker)


def test_threads_pass_gradients_on() -> None:
    with loader_of(gf.ItemSet(4, names="seeds"), compute, "thread") as loader:
        assert all(batch.labels.requires_grad for batch in loader)


def test_a_stage_in_a_process_that_computes_with_gradients_is_an_error() -> None:
    with (
        loader_of(gf.ItemSet(4, names="seeds"), compute, "process") as loader,
        pytest.raises(ValueError, match=r"computed from others that require gradients.*compute it behind the workers"),
    ):
        list(loader)


@pytest.mark.parametrize("count", [4, 100_000])
def test_items_that_require_gradients_do_not_go_to_processes(count: int) -> None:
    labels = torch.ones(count, requires_grad=True)
    items = gf.ItemSet((torch.arange(count), labels), names=("seeds", "labels"))
    with (
        loader_of(items, None, "process") as loader,
        pytest.raises(
            pickle.PicklingError,
            match=rf"ItemSampler, .* a tensor of shape \({count},\) in ItemSet requires",
        ),
    ):
        list(loader)
    assert items[:][1] is not None
    assert items[torch.tensor([0])][1].requires_grad
