from collections.abc import Callable

import pytest

import graphfeed as gf
from graphfeed.datapipes.datapipe import length
from tests import pipelines
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("build", [pipelines.shuffled, pipelines.heterogeneous])
@pytest.mark.parametrize("buffer_size", [1, 10])
def test_the_mini_batches_stay(buffer_size: int, build: Callable[[], gf.Datapipe]) -> None:
    pipe = build()
    assert digests(pipe.prefetch(buffer_size)) == digests(pipe)
    assert length(pipe.prefetch()) == length(pipe)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_in_the_middle_of_a_loader_s_pipeline(num_workers: int) -> None:
    pipe = pipelines.homogeneous()
    (sampler,) = gf.find(pipe, gf.NeighborSampler)
    ahead = gf.replace(pipe, sampler, sampler.prefetch(2))
    with gf.DataLoader(ahead, num_workers=num_workers, seed=1) as loader:
        assert digests(loader) == digests(pipe.with_seed(1))
        loader.load_state_dict({"seed": 1, "epoch": 0, "index": 3})
        assert digests(loader) == digests(pipe.with_seed(1, 0, 3))
        assert "PrefetcherIterDataPipe(buffer_size=2)" in loader.explain(rewritten=False)


def test_leaving_early_ends_the_thread() -> None:
    for _ in pipelines.homogeneous().prefetch():
        break


def test_its_buffer_has_ten_places_and_at_least_one() -> None:
    pipe = pipelines.homogeneous()
    assert gf.PrefetcherIterDataPipe(pipe).buffer_size == 10
    with pytest.raises(ValueError, match="buffer_size must be 1 or more, but is 0"):
        pipe.prefetch(0)
