"""Folders that are written atomically, by one process, task by task, and can be resumed."""

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from graphfeed.loader import ProcessExecutor
from graphfeed.storage.datasets import SCRATCH, check_new_folder, new_folder, run_tasks
from tests.kinds.on_disk import listing
from tests.stand_ins.clusters import dask_cluster
from tests.stand_ins.waiting import wait_until

JOURNAL = "scratch/journal.json"


def write(
    folder: Path, error: BaseException | None = None, *, replace: bool = False, resume: str | None = None
) -> None:
    """Write a file and a journal, and fail."""
    with new_folder(folder, replace=replace, resume=resume) as unfinished:
        (unfinished / "a").write_text("x")
        if resume is not None:
            (unfinished / "scratch").mkdir(exist_ok=True)
            (unfinished / JOURNAL).touch()
        if error is not None:
            raise error


def test_a_folder_appears_when_it_is_finished(tmp_path: Path) -> None:
    for name, resume in (("out", None), ("other", JOURNAL)):
        with new_folder(tmp_path / "new" / name, resume=resume) as folder:
            (folder / "a").write_text("x")
            (folder / "scratch").mkdir()
            assert not (tmp_path / "new" / name).exists()
        assert listing(tmp_path / "new" / name) == ["a"]
    assert listing(tmp_path / "new") == ["other", "out"]


def test_a_folder_with_another_key_is_begun_anew(tmp_path: Path) -> None:
    kept: list[bool] = []

    def note_and_raise(key: str, error: Exception) -> None:
        with new_folder(tmp_path / "out", resume=JOURNAL, key=key) as folder:
            kept.append((folder / "a").exists())
            (folder / "a").touch()
            raise error

    for key in ("one", "one", "two"):
        with pytest.raises(OSError, match="full"):
            note_and_raise(key, OSError(errno.ENOSPC, "full"))
    with pytest.raises(ValueError, match="wrong"):
        note_and_raise("two", ValueError("wrong"))
    assert kept == [False, True, False, True]
    assert listing(tmp_path) == []


def test_with_a_journal_what_is_done_stays_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong") as caught:
        write(tmp_path / "out", ValueError("wrong"), resume=JOURNAL)
    assert "the next run with the same files continues" in caught.value.__notes__[0]
    assert listing(tmp_path) == [".out.unfinished"]
    with new_folder(tmp_path / "out", resume=JOURNAL) as folder:
        assert (folder / "a").read_text() == "x"
    assert listing(tmp_path / "out") == ["a"]


def test_what_a_crash_left_is_removed_if_there_is_no_journal(tmp_path: Path) -> None:
    for name, resume in (("out", None), ("other", JOURNAL)):
        (tmp_path / f".{name}.unfinished" / "inner").mkdir(parents=True)
        (tmp_path / f".{name}.unfinished" / "b").touch()
        with new_folder(tmp_path / name, resume=resume):
            pass
        assert listing(tmp_path / name) == []


def test_a_folder_is_replaced_as_a_whole_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b").touch()
    with pytest.raises(KeyError):
        write(tmp_path / "out", KeyError(), replace=True)
    assert listing(tmp_path / "out") == ["b"]
    write(tmp_path / "out", replace=True)
    assert listing(tmp_path / "out") == ["a"]
    assert listing(tmp_path) == ["out"]


def test_a_folder_with_something_in_it_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(FileExistsError, match="exists and is not an empty folder; remove it"), new_folder(folder):
            pass


def test_what_appears_there_meanwhile_stays(tmp_path: Path) -> None:
    writing = new_folder(tmp_path / "out")
    writing.__enter__()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b").touch()
    with pytest.raises(FileExistsError, match="is not an empty folder"):
        writing.__exit__(None, None, None)
    assert listing(tmp_path) == ["out"]
    assert listing(tmp_path / "out") == ["b"]


def test_the_working_folder_can_not_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in (".", "../here"):
        with pytest.raises(
            FileExistsError, match="can't be replaced: it is the working folder; write to a folder in it"
        ):
            check_new_folder(Path(name))


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    write(tmp_path / "link")
    assert listing(tmp_path) == ["link", "other"]
    assert (tmp_path / "link").is_symlink()
    assert listing(tmp_path / "other") == ["a"]


def test_a_full_disk_is_said_with_the_folder(tmp_path: Path) -> None:
    for error in (OSError(errno.ENOSPC, "No space left on device"), OSError("not all was written")):
        with pytest.raises(OSError, match=f"{error.args[-1]}; nothing is left there: '{tmp_path / 'out'}'"):
            write(tmp_path / "out", error)
        assert listing(tmp_path) == []
        with pytest.raises(OSError, match=f"{error.args[-1]}; the next run .* continues .*: '{tmp_path / 'out'}'"):
            write(tmp_path / "out", error, resume=JOURNAL)
        shutil.rmtree(tmp_path / ".out.unfinished")


def test_two_processes_do_not_write_the_same_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out"):
        with pytest.raises(FileExistsError, match="another process is writing"):
            write(tmp_path / "out")
        assert (tmp_path / ".out.unfinished").is_dir()


def test_a_forked_process_does_not_keep_the_lock_of_one_that_ended(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with new_folder(tmp_path / "out"):
        child = os.fork()
        if child == 0:
            os.read(reading, 1)  # lives on, like a worker whose program was killed
            os._exit(0)
        opened = Path(f"/proc/{child}/fd")
        wait_until(lambda: not [path for path in opened.iterdir() if str(tmp_path) in os.readlink(path)])
    write(tmp_path / "out", replace=True)
    os.write(writing, b"x")
    assert os.waitpid(child, 0)[1] == 0


def write_text(text: str, folder: Path) -> list[int]:
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


def test_files_are_moved_to_their_places_and_results_are_returned(tmp_path: Path) -> None:
    tasks = {name: partial(write_text, name) for name in ("one", "three")}
    with ThreadPoolExecutor(2) as pool:
        for number, executor in enumerate((None, pool)):
            out = tmp_path / str(number)
            out.mkdir()
            assert run_tasks(out, tasks, executor) == {"one": [3], "three": [5]}
            assert listing(out) == ["inner", "one.txt", SCRATCH, "three.txt"]
            assert listing(out / "inner") == ["one", "three"]
            assert listing(out / SCRATCH) == ["one.done", "three.done"]


def test_a_finished_task_is_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong"):
        run_tasks(tmp_path, {"one": partial(write_text, "one"), "two": fail})
    assert listing(tmp_path) == ["inner", "one.txt", SCRATCH]
    assert run_tasks(tmp_path, {"one": fail, "two": partial(write_text, "two")}) == {"one": [3], "two": [3]}


def test_a_task_of_a_run_that_was_overtaken_fails_and_leaves_nothing(tmp_path: Path) -> None:
    def be_overtaken(folder: Path) -> list[int]:
        run_tasks(tmp_path, {"two": partial(write_text, "new")})
        return write_text("old", folder)

    with pytest.raises(FileNotFoundError):
        run_tasks(tmp_path, {"two": be_overtaken})
    assert listing(tmp_path) == ["inner", "new.txt", SCRATCH]
    assert listing(tmp_path / SCRATCH) == ["two.done"]


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
    failed.clear()  # so that the first of the late ones takes a moment, too
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="wrong"):
        run_tasks(
            tmp_path, {"fails": wrong, **{f"late {number}": partial(slow, "late") for number in range(50)}}, executor
        )
    assert begun.count("late") < 50


@pytest.mark.slow
def test_a_lost_worker_is_named_and_what_is_finished_stays(tmp_path: Path) -> None:
    tasks = {"one": partial(write_text, "one")}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        run_tasks(tmp_path, tasks, executor)
        with pytest.raises(BrokenProcessPool) as caught:
            run_tasks(tmp_path, {**tasks, "lost": end_process}, executor)
    assert "a worker was lost" in caught.value.__notes__[0]
    assert run_tasks(tmp_path, {"one": fail, "lost": partial(write_text, "lost")}) == {"one": [3], "lost": [4]}


@pytest.mark.slow
@pytest.mark.parametrize("start", [partial(ProcessExecutor, 1), pytest.param(dask_cluster, marks=pytest.mark.thorough)])
def test_executors_that_replace_workers_do_the_task_again(tmp_path: Path, start: Callable[[], Any]) -> None:
    (tmp_path / "out").mkdir()
    with start() as executor:
        assert run_tasks(tmp_path / "out", {"task": end_process_once}, executor) == {"task": "done"}
    assert (tmp_path / "ended").exists()
    assert (tmp_path / "out" / "half").read_text() == "whole"
