from collections.abc import Callable, Iterator

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.datapipe import length
from tests import pipelines
from tests.digests import digests


class Numbers(gf.Datapipe[int]):
    """Counts, and remembers how far it came."""

    seen: list[int]

    def __iter__(self) -> Iterator[int]:
        for number in range(5):
            self.seen.append(number)
            yield number


@pytest.mark.parametrize("size", [1, 3, 9])
def test_it_reads_ahead_by_its_size(size: int) -> None:
    source = Numbers([])
    ahead = [(item, len(source.seen)) for item in gf.Bufferer(source, size)]
    assert ahead == [(number, min(number + 1 + size, 5)) for number in range(5)]


@pytest.mark.parametrize("build", [pipelines.shuffled, pipelines.heterogeneous])
def test_the_mini_batches_and_their_number_stay(build: Callable[[], gf.Datapipe]) -> None:
    pipe = build()
    assert digests(pipe.buffer(2)) == digests(pipe)
    assert len(pipe.buffer(2)) == length(pipe)
    with gf.DataLoader(pipe.buffer().transform(), num_workers=2, seed=1) as loader:
        assert digests(loader) == digests(pipe.with_seed(1))
        loader.load_state_dict({"seed": 1, "epoch": 0, "index": 4})
        assert digests(loader) == digests(pipe.with_seed(1, 0, 4))


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_refused(size: int) -> None:
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(2), names="seeds"), 1)
    with pytest.raises(ValueError, match=f"'buffer_size' is required to be a positive integer, but is {size}"):
        pipe.buffer(size)
