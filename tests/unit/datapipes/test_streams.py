"""Random draws of stages, torch's repeated epochs, and observers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests.kinds.stages import make_items, with_torch_workers


class Drawn(gf.Transform, draws=True):
    """Labels each mini-batch with a random draw."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        drawn = minibatch.key.at(self.number, 0)
        before = torch.empty(0, dtype=torch.int64) if minibatch.labels is None else minibatch.labels
        assert isinstance(before, torch.Tensor)
        labels = torch.cat([before, torch.tensor([drawn >> 1])])
        return gf.MiniBatch(seeds=minibatch.seeds, labels=labels, key=minibatch.key)


class Zipped(gf.Datapipe):
    """Joins the labels of any number of branches."""

    parts: tuple[gf.Datapipe, ...]

    def __iter__(self) -> Iterator[Any]:
        for batches in zip(*self.parts, strict=True):
            yield gf.MiniBatch(labels=torch.cat([batch.labels for batch in batches]), key=batches[0].key)


def drawn_in(pipe: gf.Datapipe) -> list[list[int]]:
    return [batch.labels.tolist() for batch in pipe]


def test_parallel_branches_draw_apart() -> None:
    items = make_items()
    pipe = Zipped((Drawn(Drawn(items)), Drawn(items), Zipped((Drawn(items), Drawn(items)))))
    assert all(len(set(labels)) == len(labels) == 5 for labels in drawn_in(pipe))
    assert all(len(set(labels)) == len(labels) == 6 for labels in drawn_in(Drawn(pipe)))


def test_a_join_changes_nothing_for_the_first_branch_and_what_follows() -> None:
    chain = Drawn(Drawn(make_items()))
    (first,) = gf.find(chain, gf.ItemSampler)
    joined = Zipped((chain, Drawn(first)))
    assert [labels[:2] for labels in drawn_in(joined)] == drawn_in(chain)
    keys = [Key(0, 0, index) for index in range(5)]
    assert [labels[3] for labels in drawn_in(Drawn(joined))] == [key.at(3, 0) >> 1 for key in keys]


def test_numbers_last_no_longer_than_the_run() -> None:
    items = make_items()
    left, right = Drawn(items), Drawn(items)
    alone = drawn_in(right)
    pipe = Zipped((left, right))
    first = drawn_in(pipe)
    assert drawn_in(pipe) == first
    assert drawn_in(right) == drawn_in(left) == alone
    assert drawn_in(Zipped((left, right))) == first
    again = drawn_in(Zipped((pipe, Drawn(items))))
    assert [labels[:2] for labels in again] == first
    assert all(len(set(labels)) == 3 for labels in again)


GRAPH = gf.from_coo((torch.arange(4), torch.arange(4).roll(1)), 4)


def in_torch(pipe: gf.Datapipe, num_workers: int = 0) -> list[Any]:
    return list(torch.utils.data.DataLoader(pipe, batch_size=None, num_workers=num_workers))


def test_torchs_data_loader_is_warned_of_equal_epochs() -> None:
    items = gf.ItemSet(4, names="seeds")
    shuffled, drawn = (
        gf.ItemSampler(items, 2, shuffle=True, seed=5),
        gf.ItemSampler(items, 2).sample_neighbor(GRAPH, [1]),
    )
    for pipe in (shuffled, drawn):
        with pytest.warns(UserWarning, match=r"repeats epoch 0.*use graphfeed\.DataLoader.*with_seed\(seed, epoch\)"):
            assert len(in_torch(pipe)) == 2


@with_torch_workers
def test_torchs_workers_are_warned_of_equal_epochs() -> None:
    """The warning is an error here, so that it reaches the main process."""
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2, shuffle=True)
    with pytest.raises(UserWarning, match="torch's DataLoader repeats epoch 0"):
        in_torch(pipe, num_workers=2)


def test_where_epochs_are_chosen_or_nothing_is_drawn_there_is_no_warning() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(40, names="seeds"), batch_size=2, shuffle=True)
    found = [[batch.seeds.tolist() for batch in in_torch(pipe.with_seed(0, epoch))] for epoch in (0, 1)]
    assert found[0] != found[1]
    assert found[1] == [batch.seeds.tolist() for batch in pipe.with_seed(0, 1)]
    assert len(in_torch(pipe.changed(shuffle=False))) == 20
