"""The first law: the same mini-batches, in the same order, wherever and by however many workers they are made."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from tests import pipelines
from tests.digests import digest

SEED = 11
Build = Callable[[], gf.Datapipe]


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


def two_epochs(pipe: gf.Datapipe) -> list[list[str]]:
    return [[digest(batch) for batch in pipe.with_seed(SEED, epoch)] for epoch in range(2)]


@cache
def expected(build: Build) -> list[list[str]]:
    """Return the mini-batches of two epochs without a loader, made once for all tests."""
    return two_epochs(build())


def load_two_epochs(pipe: gf.Datapipe, num_workers: int, executor: Executor | None = None) -> list[list[str]]:
    with gf.DataLoader(pipe, num_workers=num_workers, executor=executor, seed=SEED) as loader:
        return [[digest(batch) for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("build", pipelines.ALL)
@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_inline_and_threads_are_equal(build: Build, num_workers: int) -> None:
    assert load_two_epochs(build(), num_workers) == expected(build)


@pytest.mark.parametrize("build", pipelines.ALL)
def test_a_thread_pool_passed_in_is_equal(build: Build) -> None:
    with ThreadPoolExecutor(3) as executor:
        assert load_two_epochs(build(), 3, executor) == expected(build)


@pytest.mark.slow
@pytest.mark.parametrize("build", pipelines.ALL)
def test_a_process_pool_passed_in_is_equal(build: Build, processes: Executor) -> None:
    assert load_two_epochs(build(), 2, processes) == expected(build)


@pytest.fixture(scope="module")
def workers() -> Iterator[Executor]:
    with ProcessExecutor(3) as executor:
        yield executor


@pytest.mark.parametrize("build", pipelines.ALL)
def test_worker_processes_are_equal(build: Build, workers: Executor) -> None:
    assert load_two_epochs(build(), 3, workers) == expected(build)


def load_with_torch(pipe: gf.Datapipe, num_workers: int, context: str | None) -> list[str]:
    loader = torch.utils.data.DataLoader(
        pipe, batch_size=None, num_workers=num_workers, multiprocessing_context=context
    )
    return sorted(digest(batch) for batch in loader)


@pytest.mark.parametrize("build", pipelines.ALL)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_torch_loader_gives_the_same_set(build: Build, num_workers: int) -> None:
    for epoch, digests in enumerate(expected(build)):
        loaded = load_with_torch(build().with_seed(SEED, epoch), num_workers, "fork" if num_workers else None)
        assert loaded == sorted(digests)


@pytest.mark.slow
def test_a_torch_loader_that_spawns_gives_the_same_set() -> None:
    pipe = pipelines.heterogeneous().with_seed(SEED, 1)
    assert load_with_torch(pipe, 2, "spawn") == sorted(digest(batch) for batch in pipe)


@pytest.mark.parametrize("build", pipelines.ALL)
def test_resuming_at_every_index_gives_the_rest(build: Build) -> None:
    pipe = build()
    for epoch, digests in enumerate(expected(build)):
        for index in range(len(digests)):
            with gf.DataLoader(pipe, num_workers=index % 3) as loader:
                loader.load_state_dict({"seed": SEED, "epoch": epoch, "index": index})
                assert [digest(batch) for batch in loader] == digests[index:]


def test_epochs_and_seeds_differ() -> None:
    pipe = pipelines.homogeneous()
    first, second = two_epochs(pipe)
    assert not set(first) & set(second)
    assert not set(first) & {digest(batch) for batch in pipe.with_seed(SEED + 1)}


def strip(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=minibatch.seeds)


def test_a_stage_that_makes_its_own_mini_batches_keeps_the_draws_the_same() -> None:
    (sampler,) = gf.find(pipelines.shuffled(), gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    pipe = sampler.datapipe.transform(strip).sample_neighbor(sampler.graph, [2, 2])
    digests = two_epochs(pipe)
    assert load_two_epochs(pipe, 2) == digests
    assert two_epochs(pipe) == digests
