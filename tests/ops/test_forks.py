import os
import threading

from graphfeed.ops.forks import ForkLock, after_fork_in_child, renew_in_child
from tests.forked import held_elsewhere, in_child

CALLED: list[object] = []


@after_fork_in_child
def note() -> None:
    CALLED.append(os.getpid())


class Counter:
    count = 0

    def add(self) -> None:
        self.count += 1
        CALLED.append(self)


def test_functions_and_objects_that_live_are_renewed_in_a_forked_process_and_only_there() -> None:
    first, second, gone = Counter(), Counter(), Counter()
    for counter in (first, second, gone):
        renew_in_child(counter, Counter.add)
    del counter, gone
    assert in_child(lambda: [os.getpid(), first, second] == CALLED and first.count == 1) == "True"
    assert (CALLED, first.count) == ([], 0)


def test_a_lock_that_another_thread_held_is_free() -> None:
    lock = ForkLock()
    with held_elsewhere(lock):
        assert in_child(lambda: lock.acquire(timeout=5)) == "True"
        assert not lock.acquire(blocking=False)
    assert lock.acquire(timeout=5)


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    lock = ForkLock()

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
