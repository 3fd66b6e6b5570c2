"""The state of a loader: how far an epoch is, in which order, and by which seed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import Datapipe
from graphfeed.loader.progress import Progress
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


def test_every_whole_number_is_the_same_seed() -> None:
    items = gf.ItemSet(10, names="seeds")
    expected = digests(pipelines.shuffled().with_seed(3))
    sampled = digests(gf.ItemSampler(items, 2, shuffle=True, seed=3))
    numbers: list[Any] = [3, np.int32(3), np.uint64(3), torch.tensor(3)]
    for seed in numbers:
        assert digests(loader_of(seed=seed)) == expected
        assert digests(pipelines.shuffled().with_seed(seed)) == expected
        assert digests(gf.ItemSampler(items, 2, shuffle=True, seed=seed)) == sampled
    assert loader_of(seed=2**64 - 1).seed == 2**64 - 1


class Digested(Datapipe):
    """A source whose order has some digest."""

    digest: str

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def digest_order(self) -> str:
        return self.digest


class Plain(Datapipe):
    """A stage that reads from others."""

    datapipes: tuple[Datapipe, ...] = ()


def test_the_digests_of_all_sources_are_noted_and_none_without_such_a_source() -> None:
    progress = Progress(0, 0)
    progress.note_order(Plain())
    assert progress.order is None
    progress.note_order(Plain((Digested("a"), Digested("b"))))
    assert progress.order == "a b"


def test_an_epoch_that_begins_anew_may_have_any_order_and_another_one_in_the_middle_is_refused() -> None:
    progress = Progress(0, 0, order="a")
    progress.note_order(Digested("b"))
    assert progress.order == "b"
    progress = Progress(2, 3, order="a")
    with pytest.raises(ValueError, match="another order of epoch 2 than the one in state_dict"):
        progress.note_order(Digested("b"))
    assert progress.order == "a"
    progress.note_order(Digested("a"))
