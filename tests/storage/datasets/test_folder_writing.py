import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphfeed.storage.datasets.folder_writing import check_new_folder, new_folder, only_process
from tests.on_disk import listing
from tests.waiting import wait_until

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


@pytest.mark.parametrize("resume", [None, JOURNAL])
def test_a_folder_appears_when_it_is_finished(tmp_path: Path, resume: str | None) -> None:
    with new_folder(tmp_path / "new" / "out", resume=resume) as folder:
        (folder / "a").write_text("x")
        (folder / "scratch").mkdir()
        assert not (tmp_path / "new" / "out").exists()
    assert listing(tmp_path / "new") == ["out"]
    assert listing(tmp_path / "new" / "out") == ["a"]


def test_names_are_on_the_disk_before_the_folder_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr("graphfeed.storage.datasets.folder_writing.sync_folder", lambda path: synced.append(path.name))
    with new_folder(tmp_path / "out") as folder:
        (folder / "inner").mkdir()
        assert not synced
    assert synced == [".out.unfinished", "inner", tmp_path.name]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", KeyboardInterrupt())
    assert listing(tmp_path) == ["out"]
    assert listing(tmp_path / "out") == []


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
    assert "the next run with the same files goes on" in caught.value.__notes__[0]
    assert listing(tmp_path) == [".out.unfinished"]
    with new_folder(tmp_path / "out", resume=JOURNAL) as folder:
        assert (folder / "a").read_text() == "x"
    assert listing(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("resume", [None, JOURNAL])
def test_what_a_crash_left_is_removed_if_there_is_no_journal(tmp_path: Path, resume: str | None) -> None:
    (tmp_path / ".out.unfinished" / "inner").mkdir(parents=True)
    (tmp_path / ".out.unfinished" / "b").touch()
    with new_folder(tmp_path / "out", resume=resume):
        pass
    assert listing(tmp_path / "out") == []


@pytest.mark.parametrize("resume", [None, JOURNAL])
def test_if_the_folder_can_not_be_renamed_only_a_journal_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: str | None
) -> None:
    def fail(*_: object) -> None:
        raise OSError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="busy"):
            write(tmp_path / "out", resume=resume)
    assert listing(tmp_path) == ([] if resume is None else [".out.unfinished"])


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


@pytest.mark.parametrize("name", [".", "../here"])
def test_the_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(FileExistsError, match="can't be replaced: it is the working folder; write to a folder in it"):
        check_new_folder(Path(name))


def test_a_folder_that_can_not_be_replaced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))

    monkeypatch.setattr(Path, "rmdir", fail)
    (tmp_path / "mounted").mkdir()
    with pytest.raises(FileExistsError, match="mounted can't be replaced: Device or resource busy; write to a folder"):
        check_new_folder(tmp_path / "mounted")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    write(tmp_path / "link")
    assert listing(tmp_path) == ["link", "other"]
    assert (tmp_path / "link").is_symlink()
    assert listing(tmp_path / "other") == ["a"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError("not all was written")])
def test_a_full_disk_is_said_with_the_folder(tmp_path: Path, error: OSError) -> None:
    with pytest.raises(OSError, match=f"{error.args[-1]}; nothing is left there: '{tmp_path / 'out'}'"):
        write(tmp_path / "out", error)
    assert listing(tmp_path) == []
    with pytest.raises(OSError, match=f"{error.args[-1]}; the next run .* goes on .*: '{tmp_path / 'out'}'"):
        write(tmp_path / "out", error, resume=JOURNAL)


def test_two_processes_do_not_write_the_same_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out"):
        with pytest.raises(FileExistsError, match="another process is writing"):
            write(tmp_path / "out")
        assert (tmp_path / ".out.unfinished").is_dir()


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.rename(path.with_suffix(".old"))])
def test_a_lock_on_a_file_that_is_gone_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    lock = tmp_path / "lock"
    opened = os.open

    def open_and_change(path: Path, *options: int) -> int:
        descriptor = opened(path, *options)
        change(lock)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_change)
    with pytest.raises(FileExistsError, match=r"has just written .*; try again"), only_process(lock):
        pass


def test_a_forked_process_does_not_keep_the_lock_of_one_that_ended(tmp_path: Path) -> None:
    lock, (reading, writing) = tmp_path / "lock", os.pipe()
    with only_process(lock):
        child = os.fork()
        if child == 0:
            os.read(reading, 1)  # lives on, as a worker whose program was killed
            os._exit(0)
        wait_until(lambda: str(lock) not in [os.readlink(path) for path in Path(f"/proc/{child}/fd").iterdir()])
    with only_process(lock):
        os.write(writing, b"x")
        assert os.waitpid(child, 0)[1] == 0
