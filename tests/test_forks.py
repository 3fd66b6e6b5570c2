"""A process that is forked after loaders ran: each use of them works, or raises at once and says what to do."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import graph_arrays
from graphfeed.storage.memory import shareable
from tests import pipelines
from tests.digests import digest
from tests.forked import held_elsewhere, in_child

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

IN_WORKERS = pytest.mark.parametrize("worker", ["thread", pytest.param("process", marks=pytest.mark.slow)])
OWNER = "RuntimeError: this iterator belongs to the process that this one was forked from, and so do its workers; begin"


def digests(batches: Any) -> list[str]:
    return [digest(batch) for batch in batches]


@contextmanager
def used_loader(worker: str) -> Iterator[gf.DataLoader]:
    """Return a loader whose workers have run an epoch."""
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, worker=worker, seed=3) as loader:
        list(loader)
        yield loader


@IN_WORKERS
def test_an_open_iterator_is_refused_and_the_parent_goes_on(worker: str) -> None:
    with used_loader(worker) as loader:
        batches = iter(loader)
        first = next(batches)
        assert in_child(lambda: next(batches)).startswith(OWNER)
        assert in_child(lambda: batches.close()) == "None"  # type: ignore[attr-defined]
        assert in_child(loader.close) == "None"
        assert digests([first, *batches]) == digests(pipelines.shuffled().with_seed(3, 1))


@IN_WORKERS
def test_a_used_loader_starts_workers_of_the_child_s_own(worker: str) -> None:
    expected = digests(pipelines.shuffled().with_seed(3, 1))
    with used_loader(worker) as loader:
        assert in_child(lambda: digests(loader) == expected) == "True"
        assert digests(loader) == expected


@IN_WORKERS
def test_a_new_loader_in_the_child_works(worker: str) -> None:
    def run() -> bool:
        with gf.DataLoader(pipelines.shuffled(), num_workers=1, worker=worker, seed=3) as other:
            return digests(other) == digests(pipelines.shuffled().with_seed(3, 0))

    with used_loader(worker):
        assert in_child(run) == "True"


def test_an_iterator_without_workers_goes_on_in_both() -> None:
    batches = iter(gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=3))
    next(batches)
    expected = digests(pipelines.shuffled().with_seed(3, 0))[1:]
    assert in_child(lambda: digests(batches) == expected) == "True"
    assert digests(batches) == expected


def test_an_executor_that_was_passed_in_is_refused() -> None:
    with ThreadPoolExecutor(1) as executor:
        loader = gf.DataLoader(pipelines.shuffled(), num_workers=1, executor=executor)
        list(loader)
        answer = in_child(lambda: list(loader))
    assert answer.startswith("RuntimeError: the executor that this loader was given belongs to the process that this")


def test_a_loader_that_was_starting_its_workers_works() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=1) as loader, held_elsewhere(loader._workers.starting):
        assert in_child(lambda: len(list(loader))) == "9"


@pytest.mark.parametrize("lock", ["DERIVING", "MOVING"])
def test_locks_that_other_threads_held_are_free(lock: str) -> None:
    owner: Any = graph_arrays if lock == "DERIVING" else shareable
    with held_elsewhere(getattr(owner, lock)):
        assert in_child(lambda: getattr(owner, lock).acquire(timeout=5)) == "True"


class ThroughOurs(torch.utils.data.IterableDataset[Any]):
    """A data set that yields the mini-batches of a loader."""

    def __init__(self, loader: gf.DataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_torchs_data_loader_around_a_used_loader_shares_its_mini_batches() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, seed=3) as loader:
        list(loader)
        outer = torch.utils.data.DataLoader(ThroughOurs(loader), batch_size=None, num_workers=2, timeout=60)
        assert sorted(digests(outer)) == sorted(digests(pipelines.shuffled().with_seed(3, 1)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_torchs_data_loader_around_a_loader_that_measures_shares_its_mini_batches() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers="auto", seed=3) as loader:
        outer = torch.utils.data.DataLoader(ThroughOurs(loader), batch_size=None, num_workers=2, timeout=60)
        assert sorted(digests(outer)) == sorted(digests(pipelines.shuffled().with_seed(3, 0)))
