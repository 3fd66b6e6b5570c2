import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from graphfeed.loader import ProcessExecutor
from graphfeed.storage.datasets.file_tasks import begin_run, run_task, run_tasks
from graphfeed.storage.datasets.folder_writing import SCRATCH
from tests.clusters import dask_cluster
from tests.on_disk import listing


def write(text: str, folder: Path) -> list[int]:
    (folder / "inner").mkdir()
    (folder / "inner" / text).write_text(text)
    (folder / f"{text}.txt").write_text(text)
    return [len(text)]


def fail(folder: Path) -> None:
    (folder / "half").touch()
    raise ValueError("wrong")


def end_process(_: Path) -> None:
    os._exit(9)


def end_process_once(folder: Path) -> str:
    """Write half, and end this process unless an earlier one has done so."""
    ended = folder.parent.parent.parent.parent / "ended"
    (folder / "half").write_text("whole" if ended.exists() else "half")
    if not ended.exists():
        ended.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def run_twice(name: str, folder: Path) -> list[int]:
    """Do a task while it is done already, as where an engine thinks that its worker is lost."""
    result: list[int] = run_task(folder.parent.parent.parent, folder.parent, name, partial(write, name))
    assert write(name, folder) == result
    return result


@pytest.mark.parametrize("make", [None, lambda: ThreadPoolExecutor(2)])
def test_files_are_moved_to_their_places_and_results_are_returned(
    tmp_path: Path, make: Callable[[], Executor] | None
) -> None:
    executor = make() if make is not None else None
    tasks = {name: partial(write, name) for name in ("one", "three")}
    assert run_tasks(tmp_path, tasks, executor) == {"one": [3], "three": [5]}
    assert listing(tmp_path) == ["inner", "one.txt", SCRATCH, "three.txt"]
    assert listing(tmp_path / "inner") == ["one", "three"]
    assert listing(tmp_path / SCRATCH) == ["one.done", "three.done"]


def test_a_finished_task_is_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong"):
        run_tasks(tmp_path, {"one": partial(write, "one"), "two": fail})
    assert listing(tmp_path) == ["inner", "one.txt", SCRATCH]
    assert run_tasks(tmp_path, {"one": fail, "two": partial(write, "two")}) == {"one": [3], "two": [3]}


def test_a_task_may_be_done_twice_at_the_same_time(tmp_path: Path) -> None:
    assert run_tasks(tmp_path, {"one": partial(run_twice, "one")}) == {"one": [3]}
    assert (tmp_path / "one.txt").read_text() == (tmp_path / "inner" / "one").read_text() == "one"
    assert listing(tmp_path / SCRATCH) == ["one.done"]


def test_a_task_of_an_earlier_run_fails_and_leaves_nothing(tmp_path: Path) -> None:
    late = begin_run(tmp_path / SCRATCH)
    (late / "half").touch()

    def overtake(folder: Path) -> None:
        assert not (folder.parent / "half").exists()
        with pytest.raises(FileNotFoundError):
            run_task(tmp_path, late, "one", partial(write, "one"))

    def be_overtaken(folder: Path) -> list[int]:
        run_tasks(tmp_path, {"two": partial(write, "new")})
        return write("old", folder)

    run_tasks(tmp_path, {"zero": overtake})
    with pytest.raises(FileNotFoundError):
        run_tasks(tmp_path, {"two": be_overtaken})
    assert listing(tmp_path) == ["inner", "new.txt", SCRATCH]
    assert listing(tmp_path / SCRATCH) == ["two.done", "zero.done"]


def test_a_failure_cancels_tasks_that_have_not_begun_and_waits_for_the_others(tmp_path: Path) -> None:
    begun: list[str] = []
    failed = threading.Event()

    def slow(name: str, _: Path) -> None:
        begun.append(name)
        failed.wait(10)

    def wrong(_: Path) -> None:
        begun.append("wrong")
        threading.Timer(0.1, failed.set).start()
        raise ValueError("wrong")

    tasks: dict[str, Any] = {"slow": partial(slow, "slow"), "wrong": wrong}
    with ThreadPoolExecutor(2) as executor, pytest.raises(ValueError, match="wrong"):
        run_tasks(tmp_path, tasks, executor)
    assert listing(tmp_path / SCRATCH) == ["slow.done"]
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="wrong"):
        run_tasks(
            tmp_path, {"fails": wrong, **{f"late {number}": partial(slow, "late") for number in range(50)}}, executor
        )
    assert begun.count("late") < 50


@pytest.mark.slow
def test_a_lost_worker_is_named_and_what_is_finished_stays(tmp_path: Path) -> None:
    tasks = {"one": partial(write, "one")}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        run_tasks(tmp_path, tasks, executor)
        with pytest.raises(BrokenProcessPool) as caught:
            run_tasks(tmp_path, {**tasks, "lost": end_process}, executor)
    assert "a worker was lost" in caught.value.__notes__[0]
    assert run_tasks(tmp_path, {"one": fail, "lost": partial(write, "lost")}) == {"one": [3], "lost": [4]}


@pytest.mark.slow
@pytest.mark.parametrize("start", [partial(ProcessExecutor, 1), dask_cluster])
def test_executors_that_replace_workers_do_the_task_again(tmp_path: Path, start: Callable[[], Any]) -> None:
    (tmp_path / "out").mkdir()
    with start() as executor:
        assert run_tasks(tmp_path / "out", {"task": end_process_once}, executor) == {"task": "done"}
    assert (tmp_path / "ended").exists()
    assert (tmp_path / "out" / "half").read_text() == "whole"
