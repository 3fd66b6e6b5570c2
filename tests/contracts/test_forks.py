"""Forked processes wait for no lock that another thread of their parent held, and go on with its objects."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.process import ForkLock, renew_in_child
from graphfeed.ops.process.forks import RENEWED
from tests.kinds import pipelines
from tests.kinds.digests import digest
from tests.stand_ins.forked import held_elsewhere, in_child
from tests.unit.compiler.kernels import add, anew, double


def fork_locks() -> list[ForkLock]:
    """Return all of these locks that this process has."""
    return [thing for thing in RENEWED if isinstance(thing, ForkLock)]


@contextmanager
def all_locks() -> Iterator[None]:
    """Hold them all."""
    with ExitStack() as stack:
        for shared in fork_locks():
            stack.enter_context(shared.lock)
        yield


def test_every_lock_is_free_that_another_thread_held() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=1), held_elsewhere(all_locks()):
        held = [shared for shared in fork_locks() if not shared.lock.acquire(blocking=False)]
        assert len(held) > 5
        assert in_child(lambda: sum(shared.lock.acquire(timeout=1) for shared in held)) == str(len(held))
        assert not held[0].lock.acquire(blocking=False)


def test_no_module_has_a_lock_that_a_forked_process_would_wait_for() -> None:
    texts = [path.read_text() for path in Path(gf.__file__).parent.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"^(\w+).*= threading\.R?Lock\(\)", text, re.MULTILINE)}
    assert found == {"LOADING", "WATCHING"}, "a fork waits for the first, and nothing for the other"


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    lock = ForkLock().lock

    def is_held() -> bool:
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return not found[0]

    with lock, lock:
        assert in_child(is_held) == "True"
        assert in_child(lock.release) == "None"
    assert not is_held()


def test_objects_that_live_are_renewed_in_a_forked_process_and_only_there() -> None:
    called: list[str] = []
    first, gone = threading.Event(), threading.Event()
    for thing, name in ((first, "first"), (gone, "gone")):
        renew_in_child(thing, lambda _, name=name: called.append(name))  # type: ignore[misc]
    del thing, gone
    assert in_child(lambda: called) == "['first']"
    assert called == []


def read_disk(folder: Path) -> Callable[[], Any]:
    np.save(folder / "rows.npy", np.arange(3000.0).reshape(1000, 3))
    feature = gf.DiskBasedFeature(folder / "rows.npy", num_threads=3)
    return lambda: feature.read(torch.arange(1000).flip(0)).tolist()


def go_on(_: Path) -> Callable[[], Any]:
    batches = iter(gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=3))
    first = digest(next(batches))
    return lambda: [first, *(digest(batch) for batch in batches)]


def run_kernels(_: Path) -> Callable[[], Any]:
    used, unused = anew(double), anew(add)
    used(np.arange(3))
    return lambda: [used(numbers := np.arange(3)), numbers.tolist(), unused(2, 3)]


@pytest.mark.parametrize("make", [read_disk, go_on, run_kernels])
def test_a_forked_process_goes_on_as_its_parent_does(make: Callable[[Path], Callable[[], Any]], tmp_path: Path) -> None:
    use = make(tmp_path)
    with held_elsewhere(all_locks()):
        found = in_child(use)
    assert found == str(use())
