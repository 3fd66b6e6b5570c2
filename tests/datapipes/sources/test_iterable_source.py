import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import graphfeed as gf
from graphfeed.ops import Key
from tests.datapipes.stages import with_torch_workers
from tests.digests import assert_same, digests

GRAPH = gf.from_coo(torch.stack([torch.arange(20), torch.arange(20).roll(1)]), 20)


def make_batches(count: int = 5) -> list[gf.MiniBatch]:
    return [gf.MiniBatch(seeds=torch.tensor([place, place + 1])) for place in range(count)]


class Endless:
    """An iterable that is no list: it begins anew each time, and has no length."""

    def __iter__(self) -> Iterator[gf.MiniBatch]:
        return iter(make_batches())


def test_each_mini_batch_gets_a_key_by_its_place() -> None:
    keys = [batch.key for batch in gf.IterableSource(make_batches(), seed=7, epoch=3)]
    assert keys == [Key(7, 3, index) for index in range(5)]
    assert [batch.key for batch in gf.IterableSource(make_batches())] == [Key(0, 0, index) for index in range(5)]


def test_the_given_mini_batches_stay_as_they_are() -> None:
    batches = make_batches()
    before = copy.deepcopy(batches)
    pipe = gf.IterableSource(batches).sample_neighbor(GRAPH, [2]).transform().copy_to("cpu")
    first = digests(pipe)
    assert digests(pipe) == first
    assert_same(batches, before)
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        assert digests(loader) == first
    assert_same(batches, before)


def test_keys_that_were_there_are_replaced() -> None:
    batches = [gf.MiniBatch(seeds=torch.tensor([0]), key=Key(9, 9, 9))]
    (result,) = gf.IterableSource(batches)
    assert result.key == Key(0, 0, 0)
    assert batches[0].key == Key(9, 9, 9)


def test_a_stage_makes_one_of_any_iterable() -> None:
    pipe = gf.NeighborSampler(Endless(), GRAPH, [2])  # type: ignore[arg-type]
    assert isinstance(pipe.datapipe, gf.IterableSource)
    assert digests(pipe) == digests(gf.IterableSource(make_batches()).sample_neighbor(GRAPH, [2]))


def test_what_is_no_mini_batch_is_passed_on() -> None:
    assert list(gf.IterableSource([1, "two", None])) == [1, "two", None]


def test_it_can_start_later() -> None:
    pipe: Any = gf.IterableSource(make_batches())
    assert digests(pipe.keyed(4, 2, 3)) == digests(pipe.keyed(4, 2, 0))[3:]
    assert list(pipe.keyed(4, 2, 9)) == []


def test_its_length_is_that_of_the_iterable() -> None:
    assert len(gf.IterableSource(make_batches())) == 5
    with pytest.raises(TypeError, match="Endless"):
        len(gf.IterableSource(Endless()))


@with_torch_workers
@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchs_workers_share_it(num_workers: int) -> None:
    pipe = gf.IterableSource(make_batches()).with_seed(0)
    loader: Any = TorchLoader(pipe, batch_size=None, num_workers=num_workers)
    assert sorted(digests(loader)) == sorted(digests(pipe))


def test_it_prints_what_is_in_it_in_few_words() -> None:
    assert repr(gf.IterableSource(make_batches(1))) == "IterableSource(iterable=[MiniBatch(...)])"
    assert repr(gf.IterableSource(make_batches(50))) == "IterableSource(iterable=list of 50)"
