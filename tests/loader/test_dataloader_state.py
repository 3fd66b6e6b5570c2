"""A loader resumes only from a state that it could have made, and takes only whole numbers as seeds and epochs."""

from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import digests


def loader_of(**options: Any) -> gf.DataLoader:
    return gf.DataLoader(pipelines.shuffled(), num_workers=0, **options)


def item_pipe(batch_size: int) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(100, names="seeds"), batch_size, shuffle=True).transform()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epoch": -1}, ValueError, "epoch of state_dict must be 0 or more, but is -1"),
        ({"index": -1}, ValueError, "index of state_dict must be 0 or more, but is -1"),
        ({"index": 10**9}, ValueError, r"index of state_dict is 1000000000, but an epoch has \d+ mini-batches"),
        ({"index": True}, ValueError, "state_dict must hold the ints seed, epoch and index, but is {.*True"),
        ({"seed": 1.5}, ValueError, "state_dict must hold the ints seed, epoch and index, but is {'seed': 1.5"),
        ({"seed": torch.zeros(10**6)}, ValueError, r"must hold the ints .* but is {'seed': a Tensor of shape"),
    ],
)
def test_a_state_that_no_loader_made_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with loader_of(seed=1) as loader:
        state = loader.state_dict()
        with pytest.raises(error, match=message) as caught:
            loader.load_state_dict({**state, **change})
        assert len(str(caught.value)) < 500
        assert loader.state_dict() == state


@pytest.mark.parametrize("state", [None, 5, [1, 2], "state"])
def test_a_state_that_is_no_dict_is_refused(state: Any) -> None:
    with loader_of() as loader, pytest.raises(TypeError, match="state_dict must be a dict, as state_dict"):
        loader.load_state_dict(state)


def test_the_state_at_the_end_of_an_epoch_is_accepted() -> None:
    with loader_of(seed=1) as loader:
        whole = {**loader.state_dict(), "index": len(loader)}
        loader.load_state_dict(whole)
        assert list(loader) == []
        assert loader.state_dict()["epoch"] == 1


def test_a_state_of_another_batch_size_is_refused() -> None:
    loaders = [gf.DataLoader(item_pipe(size), num_workers=0) for size in (10, 5)]
    next(iter(loaders[0]))
    with pytest.raises(ValueError, match="another pipeline: batch_size of stage 1 ItemSampler is 10 in it, but 5 here"):
        loaders[1].load_state_dict(loaders[0].state_dict())


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize(
    ("seed", "text"),
    [
        (1.5, "is 1.5"),
        ("3", "is '3'"),
        (3.0, "is 3.0"),
        (0.0, "is 0.0"),
        (np.float64(3), r"is np.float64\(3.0\)"),
        (generator(), r"is a torch.Generator; give its initial_seed\(\)"),
        (torch.tensor([1, 2]), r"is tensor\(\[1, 2\]\)"),
        ([3], r"is \[3\]"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_seed_that_is_no_whole_number_is_refused_by_name(seed: Any, text: str) -> None:
    items = gf.ItemSet(10, names="seeds")
    graph = gf.from_coo(([0, 1], [1, 0]), 2)
    for give in (
        lambda: loader_of(seed=seed),
        lambda: gf.ItemSampler(items, 2, seed=seed),
        lambda: gf.DistributedItemSampler(items, 2, seed=seed, rank=0, world_size=1),
        lambda: pipelines.shuffled().with_seed(seed),
    ):
        with pytest.raises(TypeError, match=f"^seed must be a whole number, but {text}"):
            give()
    with pytest.raises(TypeError, match=f"^val must be a whole number, but {text}"):
        gf.seed(seed)
    with pytest.raises(TypeError, match=r"^random_seed must "):
        graph.sample_layer_neighbors(torch.tensor([0]), torch.tensor([1]), random_seed=[seed])


@pytest.mark.parametrize("seed", [3, np.int32(3), np.uint64(3), torch.tensor(3)], ids=lambda seed: type(seed).__name__)
def test_every_whole_number_is_the_same_seed(seed: Any) -> None:
    expected = digests(pipelines.shuffled().with_seed(3))
    assert digests(loader_of(seed=seed)) == expected
    assert digests(pipelines.shuffled().with_seed(seed)) == expected
    items = gf.ItemSet(10, names="seeds")
    assert digests(gf.ItemSampler(items, 2, shuffle=True, seed=seed)) == digests(
        gf.ItemSampler(items, 2, shuffle=True, seed=3)
    )


@pytest.mark.parametrize(("epoch", "error"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_an_epoch_that_is_none_is_refused(epoch: Any, error: type[Exception]) -> None:
    for give in (lambda: loader_of().set_epoch(epoch), lambda: pipelines.shuffled().with_seed(0, epoch)):
        with pytest.raises(error, match=r"^epoch must be "):
            give()
    with pytest.raises(error, match=r"^start must be "):
        pipelines.shuffled().with_seed(0, 0, epoch)
