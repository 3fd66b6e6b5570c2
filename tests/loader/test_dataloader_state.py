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


def test_the_state_at_the_end_of_an_epoch_is_accepted() -> None:
    with loader_of(seed=1) as loader:
        whole = {**loader.state_dict(), "index": len(loader)}
        loader.load_state_dict(whole)
        assert list(loader) == []
        assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("seed", [3, np.int32(3), np.uint64(3), torch.tensor(3)], ids=lambda seed: type(seed).__name__)
def test_every_whole_number_is_the_same_seed(seed: Any) -> None:
    expected = digests(pipelines.shuffled().with_seed(3))
    assert digests(loader_of(seed=seed)) == expected
    assert digests(pipelines.shuffled().with_seed(seed)) == expected
    items = gf.ItemSet(10, names="seeds")
    assert digests(gf.ItemSampler(items, 2, shuffle=True, seed=seed)) == digests(
        gf.ItemSampler(items, 2, shuffle=True, seed=3)
    )
