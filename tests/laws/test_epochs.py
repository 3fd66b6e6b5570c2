"""The fourth law: the end of an epoch, which leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.kinds.stages import with_torch_workers
from tests.stand_ins.forked import in_child
from tests.stand_ins.programs import run_body, start
from tests.stand_ins.scripts import REPOSITORY
from tests.stand_ins.waiting import NO_EXCEPTIONS, FailsAt

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")
EVERY_KIND = pytest.mark.parametrize(("num_workers", "worker"), [(0, "thread"), (2, "thread"), (2, "process")])
IN_WORKERS = pytest.mark.parametrize("worker", ["thread", "process"])


def raise_in_loop(loader: gf.DataLoader) -> None:
    for _ in loader:
        raise LookupError("mine")


@EVERY_KIND
def test_after_a_break_and_an_exception_in_the_loop_the_next_epoch_begins(num_workers: int, worker: str) -> None:
    pipe = pipelines.shuffled()
    expected = [digest(batch) for batch in pipe.with_seed(3, epoch=2)]
    with gf.DataLoader(pipe, num_workers=num_workers, worker=worker, seed=3) as loader:
        for _ in loader:
            break
        with pytest.raises(LookupError, match="mine"):
            raise_in_loop(loader)
        assert [digest(batch) for batch in loader] == expected
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=4, drop_last=True).transform()
    with gf.DataLoader(pipe, num_workers=num_workers, worker=worker) as loader:
        assert len(loader) == len(list(loader)) == len(list(loader)) == 0, "there is no full mini-batch"


@EVERY_KIND
def test_a_failure_in_a_stage_comes_in_its_place_and_says_where(num_workers: int, worker: str) -> None:
    pipe = pipelines.homogeneous().transform(FailsAt(5))
    with gf.DataLoader(pipe, num_workers=num_workers, worker=worker, seed=3) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        with pytest.raises(ArithmeticError, match="no") as caught:
            next(batches)
        assert list(batches) == []
        assert loader.state_dict().items() >= {"seed": 3, "epoch": 0, "index": 5}.items()
        (note,) = caught.value.__notes__
        assert "MiniBatchTransformer, stage 4, mini-batch 5 of epoch 0" in note
        where = "the main thread" if num_workers == 0 else f"worker {worker} graphfeed"
        assert f"in {where}" in note


@EVERY_KIND
def test_an_error_that_is_no_exception_is_raised_by_the_loader(num_workers: int, worker: str) -> None:
    pipe = pipelines.homogeneous()
    expected = digests(pipe.with_seed(3))
    for error in NO_EXCEPTIONS:
        found = list[str]()
        with gf.DataLoader(pipe.transform(FailsAt(5, error)), num_workers, worker=worker, seed=3) as loader:
            with pytest.raises(error, match="no"):
                found.extend(map(digest, loader))
            assert found == expected[: len(found)]
            assert len(found) <= 5


def test_an_epoch_is_resumed_with_any_number_and_kind_of_workers() -> None:
    pipe = pipelines.weighted()
    expected = digests(pipe.with_seed(3, epoch=4))
    made: list[str] = []
    state = {"seed": 3, "epoch": 4, "index": 0}
    for num_workers, worker in [(2, "process"), (0, "thread"), (1, "process"), (3, "thread")]:
        with gf.DataLoader(pipe, num_workers, worker=worker) as loader:
            loader.load_state_dict(state)
            batches = iter(loader)
            made += [digest(next(batches)) for _ in range(2)]
            state = loader.state_dict()
    assert made == expected[:8]


@IN_WORKERS
def test_two_iterators_at_once_are_two_epochs(worker: str) -> None:
    pipe = pipelines.shuffled()
    with gf.DataLoader(pipe, num_workers=2, worker=worker, seed=3) as loader:
        pairs = [(digest(one), digest(two)) for one, two in zip(loader, loader, strict=True)]
    assert [one for one, _ in pairs] == [digest(batch) for batch in pipe.with_seed(3, 0)]
    assert [two for _, two in pairs] == [digest(batch) for batch in pipe.with_seed(3, 1)]


@IN_WORKERS
def test_two_loaders_of_one_pipeline_don_t_disturb_each_other(worker: str) -> None:
    pipe = pipelines.weighted()
    expected = [digest(batch) for batch in pipe.with_seed(3)]
    with gf.DataLoader(pipe, 2, worker=worker, seed=3) as one, gf.DataLoader(pipe, 1, worker=worker, seed=3) as two:
        pairs = [(digest(first), digest(second)) for first, second in zip(one, two, strict=True)]
    assert pairs == [(value, value) for value in expected]


@IN_WORKERS
def test_a_forgotten_loader_ends_its_workers(worker: str) -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=2, worker=worker, seed=3)
    list(loader)
    del loader  # the fixture waits for the threads


@IN_WORKERS
def test_closing_ends_a_running_epoch_and_the_loader_and_an_epoch_may_end_its_workers(worker: str) -> None:
    before = set(threading.enumerate())  # features of other tests may have threads
    loader = gf.DataLoader(pipelines.heterogeneous(), num_workers=2, worker=worker, seed=3, persistent_workers=False)
    batches = iter(loader)
    next(batches)
    del batches
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("graphfeed")]
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=2, worker=worker, seed=3)
    batches = iter(loader)
    next(batches)
    loader.close()
    assert list(batches) == []
    with pytest.raises(RuntimeError, match="closed"):
        iter(loader)


@EVERY_KIND
def test_a_thread_whose_loader_is_closed_by_another_is_told_so(num_workers: int, worker: str) -> None:
    def iterate(loader: gf.DataLoader, begun: threading.Event, closed: threading.Event, step: float) -> None:
        while not closed.is_set():
            for _ in loader:
                begun.set()
                closed.wait(step)

    for step in (0, 30):
        loader = gf.DataLoader(pipelines.shuffled(), num_workers=num_workers, worker=worker, seed=3)
        begun, closed = threading.Event(), threading.Event()
        with ThreadPoolExecutor(1) as thread:
            reading = thread.submit(iterate, loader, begun, closed, step)
            begun.wait(30)
            loader.close()
            closed.set()
            with pytest.raises(RuntimeError, match=r"^the loader is closed; create another one$"):
                reading.result(30)


@pytest.mark.usefixtures("warm_programs")
@pytest.mark.slow
def test_ctrl_c_ends_the_process_at_once() -> None:
    process = start(
        """
        loader = gf.DataLoader(pipelines.shuffled(), num_workers=2)
        while True:
            for batch in loader:
                print("ready", flush=True)
                time.sleep(0.01)
        """
    )
    process.wait_for("ready")
    process.send_signal(signal.SIGINT)
    status, _, errors = process.end()
    assert status == 1
    assert errors.strip().endswith("KeyboardInterrupt")


@pytest.mark.usefixtures("warm_programs")
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["sys.exit(7)", pytest.param("os._exit(7)", marks=pytest.mark.thorough)])
def test_leaving_in_the_middle_of_an_epoch_ends_the_process(ending: str) -> None:
    ended = run_body(
        f"""
        for batch in gf.DataLoader(pipelines.shuffled(), num_workers=2):
            {ending}
        """
    )
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.mark.usefixtures("warm_programs")
@pytest.mark.slow
@pytest.mark.parametrize("options", ["num_workers=0, window=4", "num_workers=2, window=4", "2, worker='process'"])
@pytest.mark.parametrize("reader", ["a daemon thread", "an exit handler"])
def test_whoever_takes_mini_batches_as_the_program_ends_ends_without_a_word(reader: str, options: str) -> None:
    ended = run_body(
        f"""
        import atexit
        import tempfile
        import threading
        import numpy as np

        path = tempfile.mkdtemp() + "/x.npy"
        np.save(path, np.zeros((pipelines.NUM_NODES, 3)))
        store = gf.BasicFeatureStore({{("node", None, "x"): gf.DiskBasedFeature(path)}})
        loader = gf.DataLoader(pipelines.shuffled().fetch_feature(store, ["x"]), {options}, seed=0)
        begun = threading.Event()

        def read():
            while True:
                for _ in loader:
                    begun.set()

        if {reader == "an exit handler"}:
            batches = iter(loader)
            next(batches)
            atexit.register(next, batches)
        else:
            threading.Thread(target=read, daemon=True).start()
            begun.wait(100)
        """
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_nothing_is_written_but_caches(tmp_path: Path) -> None:
    script = "import graphfeed as gf\nfrom tests.kinds import pipelines\nlist(gf.DataLoader(pipelines.weighted(), 2))\n"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(REPOSITORY),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=100)
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


@pytest.mark.usefixtures("warm_programs")
@pytest.mark.slow
def test_forked_workers_run_after_torch_used_its_threads() -> None:
    ended = run_body(
        """
        import torch
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        torch.set_num_threads(2)
        torch.bucketize(torch.arange(1_000_000), torch.arange(10))
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as executor:
            with gf.DataLoader(pipelines.heterogeneous(), num_workers=2, executor=executor, timeout=60) as loader:
                print(len(list(loader)))
        """
    )
    assert (ended.stdout, ended.stderr) == ("9\n", "")


WITH_EITHER = pytest.mark.parametrize("worker", ["thread", pytest.param("process", marks=pytest.mark.slow)])
OWNER = "RuntimeError: this iterator and its workers belong to the process that this one was forked from"


@contextmanager
def used_loader(worker: str) -> Iterator[gf.DataLoader]:
    """Return a loader whose workers have run an epoch."""
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, worker=worker, seed=3) as loader:
        list(loader)
        yield loader


@WITH_EITHER
def test_an_open_iterator_is_refused_and_the_parent_goes_on(worker: str) -> None:
    with used_loader(worker) as loader:
        batches = iter(loader)
        first = next(batches)
        assert in_child(lambda: next(batches)).startswith(OWNER)
        assert in_child(lambda: batches.close()) == "None"  # type: ignore[attr-defined]
        assert in_child(loader.close) == "None"
        assert digests([first, *batches]) == digests(pipelines.shuffled().with_seed(3, 1))


@WITH_EITHER
def test_a_used_loader_starts_workers_of_the_child_s_own(worker: str) -> None:
    expected = digests(pipelines.shuffled().with_seed(3, 1))

    def run() -> bool:
        with gf.DataLoader(pipelines.shuffled(), num_workers=1, worker=worker, seed=3) as other:
            return digests(loader) == expected and digests(other) == digests(pipelines.shuffled().with_seed(3, 0))

    with used_loader(worker) as loader:
        assert in_child(run) == "True"
        assert digests(loader) == expected


def test_an_executor_that_was_passed_in_is_refused() -> None:
    with ThreadPoolExecutor(1) as executor:
        loader = gf.DataLoader(pipelines.shuffled(), num_workers=1, executor=executor)
        list(loader)
        answer = in_child(lambda: list(loader))
    assert answer.startswith("RuntimeError: this loader's executor belongs to the process that this")


class ThroughOurs(torch.utils.data.IterableDataset[Any]):
    """A data set that yields the mini-batches of a loader."""

    def __init__(self, loader: gf.DataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


@with_torch_workers
def test_torchs_data_loader_around_a_used_loader_shares_its_mini_batches() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, seed=3) as loader:
        list(loader)
        outer = torch.utils.data.DataLoader(ThroughOurs(loader), batch_size=None, num_workers=2, timeout=60)
        assert sorted(digests(outer)) == sorted(digests(pipelines.shuffled().with_seed(3, 1)))
