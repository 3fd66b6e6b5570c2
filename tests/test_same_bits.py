"""The first law: the same mini-batches, in the same order, wherever and by however many workers they are made."""

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
Epochs = list[list[str]]


def two_epochs(pipe: gf.Datapipe) -> Epochs:
    return [[digest(batch) for batch in pipe.with_seed(SEED, epoch)] for epoch in range(2)]


@cache
def expected() -> dict[str, Epochs]:
    """Return the mini-batches of two epochs of each pipeline without a loader, made once for all tests."""
    return {build.__name__: two_epochs(build()) for build in pipelines.ALL}


def load_two_epochs(pipe: gf.Datapipe, num_workers: int, executor: Executor | None = None) -> Epochs:
    with gf.DataLoader(pipe, num_workers=num_workers, executor=executor, seed=SEED) as loader:
        return [[digest(batch) for batch in loader] for _ in range(2)]


def load_all(num_workers: int, executor: Executor | None = None) -> dict[str, Epochs]:
    return {build.__name__: load_two_epochs(build(), num_workers, executor) for build in pipelines.ALL}


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_inline_and_threads_are_equal(num_workers: int) -> None:
    assert load_all(num_workers) == expected()


def test_a_thread_pool_passed_in_is_equal() -> None:
    with ThreadPoolExecutor(3) as executor:
        assert load_all(3, executor) == expected()


@pytest.mark.slow
def test_a_process_pool_passed_in_is_equal() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert load_all(2, executor) == expected()


@pytest.mark.slow
def test_worker_processes_are_equal() -> None:
    with ProcessExecutor(3) as executor:
        assert load_all(3, executor) == expected()


def load_with_torch(pipe: gf.Datapipe, num_workers: int, context: str | None) -> list[str]:
    loader = torch.utils.data.DataLoader(
        pipe, batch_size=None, num_workers=num_workers, multiprocessing_context=context
    )
    return sorted(digest(batch) for batch in loader)


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_torch_loader_gives_the_same_set(num_workers: int) -> None:
    context = "fork" if num_workers else None
    for build in pipelines.ALL:
        for epoch, digests in enumerate(expected()[build.__name__]):
            loaded = load_with_torch(build().with_seed(SEED, epoch), num_workers, context)
            assert loaded == sorted(digests), build.__name__


@pytest.mark.thorough
def test_a_torch_loader_that_spawns_gives_the_same_set() -> None:
    pipe = pipelines.heterogeneous().with_seed(SEED, 1)
    assert load_with_torch(pipe, 2, "spawn") == sorted(digest(batch) for batch in pipe)


def test_resuming_at_every_index_gives_the_rest() -> None:
    for build in pipelines.ALL:
        pipe = build()
        for epoch, digests in enumerate(expected()[build.__name__]):
            for index in range(len(digests)):
                with gf.DataLoader(pipe, num_workers=index % 3) as loader:
                    loader.load_state_dict({"seed": SEED, "epoch": epoch, "index": index})
                    assert [digest(batch) for batch in loader] == digests[index:], (build.__name__, epoch, index)


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
