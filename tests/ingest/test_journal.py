from pathlib import Path

import pytest

from graphfeed.ingest.journal import JOURNAL, Journal, digest, unfinished_folder, unfinished_of
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
