"""The first law: the same mini-batches, in the same order, for any kind and number of workers."""

from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import pytest

import graphfeed as gf
from graphfeed import ProcessExecutor
from graphfeed.storage.memory import tensors_in
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest, digests
from tests.stand_ins.emulated_cuda import Cuda, device_of
from tests.stand_ins.late_streams import running

SEED = 11
Epochs = list[list[str]]


def two_epochs(pipe: gf.Datapipe) -> Epochs:
    return [[digest(batch) for batch in pipe.with_seed(SEED, epoch)] for epoch in range(2)]


@cache
def expected() -> dict[str, Epochs]:
    """Return the mini-batches of two epochs of each pipeline without a loader, computed once for all tests."""
    return {build.__name__: two_epochs(build()) for build in pipelines.ALL}


def load_two_epochs(pipe: gf.Datapipe, num_workers: int, executor: Executor | None = None) -> Epochs:
    with gf.DataLoader(pipe, num_workers=num_workers, executor=executor, seed=SEED) as loader:
        return [[digest(batch) for batch in loader] for _ in range(2)]


def load_all(num_workers: int, executor: Executor | None = None) -> dict[str, Epochs]:
    return {build.__name__: load_two_epochs(build(), num_workers, executor) for build in pipelines.ALL}


@pytest.mark.parametrize("num_workers", [0, 4])
def test_inline_and_threads_are_equal(num_workers: int) -> None:
    assert load_all(num_workers) == expected()


@pytest.mark.slow
def test_a_process_pool_passed_in_is_equal() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert load_all(2, executor) == expected()


@pytest.mark.slow
def test_worker_processes_are_equal() -> None:
    with ProcessExecutor(3) as executor:
        assert load_all(3, executor) == expected()


def test_a_minibatch_is_that_of_the_cpu_and_lies_there(cuda: Cuda) -> None:
    for build in pipelines.ALL:
        with cuda.running():
            found = next(iter(pipelines.moved(build(), device_of(cuda)).with_seed(1)))
            assert all(map(cuda.is_there, tensors_in(vars(found)))), build.__name__
        assert_same(found, next(iter(build().with_seed(1))))


def test_minibatches_are_those_of_the_cpu_through_a_loader_and_its_streams(cuda: Cuda) -> None:
    for build in pipelines.ALL:
        expected = digests(build().with_seed(1))
        with (
            running(cuda),
            gf.DataLoader(pipelines.moved(build(), device_of(cuda)), seed=1, overlap_graph_fetch=True) as loader,
        ):
            assert [digest(minibatch.to("cpu")) for minibatch in loader] == expected, build.__name__
