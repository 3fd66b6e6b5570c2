"""Any engine with the interface of the standard library runs the workers, and the mini-batches are the same bits."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from tests import pipelines
from tests.digests import digests

SEED = 7


def threads() -> Executor:
    return ThreadPoolExecutor(2)


def process_pool() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def own_processes() -> Executor:
    return ProcessExecutor(2)


@contextmanager
def dask_cluster() -> Iterator[Executor]:
    """Start a scheduler and two worker processes of this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.mark.slow
@pytest.mark.parametrize("start", [threads, process_pool, own_processes, dask_cluster])
def test_every_engine_gives_the_same_mini_batches(start: Callable[[], AbstractContextManager[Executor]]) -> None:
    pipe = pipelines.shuffled()
    expected = [digests(pipe.with_seed(SEED, epoch)) for epoch in range(2)]
    with start() as executor:
        loader = gf.DataLoader(pipe, num_workers=2, executor=executor, seed=SEED)
        assert [digests(loader) for _ in range(2)] == expected
        batches = iter(loader)
        next(batches)
        del batches
        assert len(digests(loader)) == len(loader)
