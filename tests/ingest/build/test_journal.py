from pathlib import Path

import pytest

from graphfeed.ingest.build.journal import JOURNAL, SCRATCH, Journal, digest, unfinished_folder, unfinished_of
from tests.on_disk import listing


def test_a_folder_appears_when_it_is_finished(tmp_path: Path) -> None:
    with unfinished_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("x")
        (folder / "scratch").mkdir()
        Journal(folder).note("step", "key")
        assert not (tmp_path / "out").exists()
    assert listing(tmp_path) == ["out"]
    assert listing(tmp_path / "out") == ["a"]


def test_after_an_error_what_is_done_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    def begin() -> None:
        with unfinished_folder(tmp_path / "out") as folder:
            Journal(folder).note("step", "key", rows=3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        begin()
    assert "the next run with the same files goes on" in caught.value.__notes__[0]
    assert listing(tmp_path) == [".out.unfinished"]
    with unfinished_folder(tmp_path / "out") as folder:
        journal = Journal(folder)
        assert journal.gone_on
        assert journal.find("step", "key") == {"key": "key", "rows": 3}
        assert journal.find("step", "other") is None
        assert journal.find("step", "key") is None


def test_after_an_error_before_the_first_step_nothing_is_left(tmp_path: Path) -> None:
    def begin() -> None:
        with unfinished_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("x")
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        begin()
    assert listing(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 0, "steps": {"a": {}}}', '{"version": 1, "steps": 3}'])
def test_a_damaged_journal_is_no_journal(tmp_path: Path, text: str) -> None:
    (tmp_path / JOURNAL).write_text(text)
    assert Journal(tmp_path).steps == {}


def test_two_processes_do_not_write_the_same_folder(tmp_path: Path) -> None:
    with unfinished_folder(tmp_path / "out"):
        with (
            pytest.raises(FileExistsError, match="another process is writing"),
            unfinished_folder(tmp_path / "out"),
        ):
            pass
        assert unfinished_of(tmp_path / "out").is_dir()


def test_digests_differ_if_values_do() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_steps_that_are_not_kept_are_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("one", "a")
    journal.note("two", "b")
    journal.keep(["two", "three"])
    assert Journal(tmp_path).steps == {"two": {"key": "b"}}


def test_what_is_done_stays_if_the_folder_can_not_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("busy")

    def begin() -> None:
        with unfinished_folder(tmp_path / "out") as folder:
            (folder / SCRATCH).mkdir()
            (folder / SCRATCH / "a").write_text("x")
            Journal(folder).note("step", "key")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="busy") as caught:
            begin()
    assert "goes on from what is done" in caught.value.__notes__[0]
    with unfinished_folder(tmp_path / "out") as folder:
        assert Journal(folder).find("step", "key") is not None
        assert listing(folder / SCRATCH) == ["a"]
    assert listing(tmp_path / "out") == []


def test_a_folder_that_can_not_be_replaced_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    monkeypatch.chdir(tmp_path / "own")
    wrong = {"../own": "the working folder", ".": "the working folder", "../link": "a symbolic link"}
    for name, reason in {**wrong, "../nowhere": "a symbolic link"}.items():
        with (
            pytest.raises(FileExistsError, match=f"is {reason}, which can't be replaced"),
            unfinished_folder(Path(name)),
        ):
            pass
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "disk")
    (tmp_path / "disk").mkdir()
    with pytest.raises(FileExistsError, match="is a mount point"), unfinished_folder(tmp_path / "disk"):
        pass
    assert listing(tmp_path) == ["disk", "link", "nowhere", "other", "own"]
