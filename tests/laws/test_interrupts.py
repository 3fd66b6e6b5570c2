"""Ctrl-C at any moment raises a KeyboardInterrupt, and leaves everything usable."""

import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.ops.process import Changes, as_they_end, result_of, uninterrupted
from tests.stand_ins.programs import run_body
from tests.stand_ins.waiting import interrupt

PACKAGE = Path(gf.__file__).parent

EPOCHS = """
import random
from tests.kinds.digests import digest

kind, workers, tries = {!r}, {}, {}
pipe = pipelines.shuffled()
with gf.DataLoader(pipe, 0, seed=0) as alone:
    right = [digest(minibatch) for minibatch in alone]
    begin = time.perf_counter()
    assert len(list(alone)) == len(right)
    seconds = time.perf_counter() - begin
loader = gf.DataLoader(pipe, workers, worker=kind, seed=0, profile=True, progress=True)
list(loader)
wanted, sent = threading.Semaphore(0), [0]
moments = random.Random(3)

def send():
    while True:
        wanted.acquire()
        time.sleep(1.2 * seconds * moments.random())
        sent[0] += 1
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=send, daemon=True).start()
seen = 0
for number in range(1, tries + 1):
    wanted.release()
    begin = time.monotonic()
    try:
        while sent[0] < number or time.monotonic() < begin + 20:  # until it comes, or is known to be lost
            for minibatch in loader:
                pass
        sys.exit(f"the interrupt {{number}} is lost")
    except KeyboardInterrupt:
        seen += 1
    loader.set_epoch(0)
    assert [digest(minibatch) for minibatch in loader] == right
loader.close()
print(seen, "of", tries)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "workers", "tries"),
    [
        ("thread", 0, 20),
        ("thread", 2, 20),
        *[
            pytest.param(*given, marks=[pytest.mark.thorough, pytest.mark.timeout(900)])
            for given in [("thread", 0, 300), ("thread", 2, 300), ("process", 2, 100)]
        ],
    ],
)
def test_an_epoch_may_be_interrupted_at_any_moment_and_begun_again(kind: str, workers: int, tries: int) -> None:
    ended = run_body(EPOCHS.format(kind, workers, tries), seconds=100 + 2 * tries)
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, [f"{tries} of {tries}"]), ended.stderr[-2000:]


BARS = """
import tqdm.auto
from graphfeed.ops.process import progress_bar

bar = progress_bar("counts", 2, "row")
loader = gf.DataLoader(pipelines.shuffled(), 0, seed=0, progress=True)
print(len(list(loader)))
for lock in (tqdm.auto.tqdm.get_lock(), bar.get_lock()):
    if (pid := os.fork()) == 0:
        lock.acquire()
        os._exit(0)
    os.waitpid(pid, 0)
bar.update()
print(len(list(loader)))
"""


def test_a_process_that_ends_while_it_draws_a_bar_stops_no_other_one() -> None:
    counts = run_body(BARS).stdout.split()
    assert len(counts) == 2
    assert counts[0] == counts[1]


FINALIZERS = """
import gc, weakref

class Dies:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Weak:
    pass

def dies():
    Dies()

def calls_back():
    one = Weak()
    reference = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGINT))
    del one

def finalizes():
    weakref.finalize(Weak(), signal.raise_signal, signal.SIGINT)

def generates():
    def numbers():
        try:
            yield 1
        finally:
            signal.raise_signal(signal.SIGINT)
    next(numbers())

def is_in_a_cycle():
    one = Dies()
    one.own = one
    del one
    gc.collect()

for case in (dies, calls_back, finalizes, generates, is_in_a_cycle):
    begin = time.monotonic()
    try:
        case()
        time.sleep(20)
    except KeyboardInterrupt:
        print(case.__name__ if time.monotonic() < begin + 50 else "late")
"""


def test_an_interrupt_in_a_finalizer_is_raised_after_it() -> None:
    ended = run_body(FINALIZERS)
    assert ended.stdout.split() == ["dies", "calls_back", "finalizes", "generates", "is_in_a_cycle"]
    assert ended.stderr == ""


def test_other_errors_in_finalizers_are_reported_as_before() -> None:
    ended = run_body("class Dies:\n    def __del__(self): 1 / 0\nDies()\nprint('goes on')")
    assert ended.stdout == "goes on\n"
    assert "ZeroDivisionError" in ended.stderr


def test_an_interrupt_waits_for_the_end_of_a_block() -> None:
    done, before = [], signal.getsignal(signal.SIGINT)

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is before


WAITS: list[Callable[[Changes, "Future[int]"], object]] = [
    lambda changes, _: changes.wait_for(lambda: None, 30),
    lambda changes, _: changes.wait_for(lambda: None, every=0.01),
    lambda _, future: result_of(future, 30),
    lambda _, future: list(as_they_end([future])),
]


def test_an_interrupted_wait_leaves_locks_free() -> None:
    def use(changes: Changes, future: "Future[int]", used: list[int]) -> None:
        future.set_result(3)
        with changes.lock:
            used.append(future.result(0))

    for wait in WAITS:
        changes, future, used = Changes(), Future[int](), list[int]()
        with pytest.raises(KeyboardInterrupt):
            interrupt(partial(wait, changes, future))
        thread = threading.Thread(target=use, args=(changes, future, used), daemon=True)
        thread.start()
        thread.join(20)
        assert used == [3]
        assert changes.wait_for(lambda: 5, 1) == 5


def test_a_wait_is_told_of_changes_and_of_the_end_of_its_time() -> None:
    changes, items = Changes(), list[int]()
    threading.Timer(0.05, items.append, (3,)).start()
    threading.Timer(0.1, changes.notify_all).start()
    assert changes.wait_for(lambda: items and items.pop(), 30) == 3
    assert changes.wait_for(lambda: items, 0.01) == []
    looks = iter([0, 0, 3])
    assert changes.wait_for(lambda: next(looks), 30, every=0.001) == 3, "it looks again although nothing changed"


def test_no_lock_is_entered_in_python() -> None:
    """An interrupt in `__enter__` or `wait` of these leaves them held; see `graphfeed/ops/process/interrupts.py`."""
    of_python = re.compile(r"threading\.Condition\(|\.Barrier\(|futures import .*\b(wait|as_completed)\b")
    assert [str(path) for path in PACKAGE.rglob("*.py") if of_python.search(path.read_text())] == []
