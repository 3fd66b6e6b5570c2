from pathlib import Path

import pytest

from graphfeed.ingest.build.journal import JOURNAL, SO_FAR, Journal, digest


def test_what_was_noted_is_found_if_files_and_options_are_the_same(tmp_path: Path) -> None:
    Journal(tmp_path).note("step", "key", rows=3)
    journal = Journal(tmp_path)
    assert journal.find("step", "key") == {"key": "key", "rows": 3}
    assert journal.find("step", "other") is None
    assert journal.find("step", "key") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 0, "steps": {"a": {}}}', '{"version": 2, "steps": 3}'])
def test_a_damaged_journal_is_no_journal(tmp_path: Path, text: str) -> None:
    (tmp_path / JOURNAL).parent.mkdir()
    (tmp_path / JOURNAL).write_text(text)
    assert Journal(tmp_path).steps == {}


def test_digests_differ_if_values_do() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_steps_that_are_not_kept_are_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("one", "a")
    journal.note("two", "b")
    journal.keep(["two", "three"])
    assert Journal(tmp_path).steps == {"two": {"key": "b"}}


def test_a_step_that_is_done_replaces_what_was_done_so_far(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("a" + SO_FAR, "key", rows=1)
    assert Journal(tmp_path).find("a" + SO_FAR, "key") == {"key": "key", "rows": 1}
    journal.note("a", "key", rows=2)
    assert Journal(tmp_path).find("a" + SO_FAR, "key") is None
    assert Journal(tmp_path).find("a", "key") == {"key": "key", "rows": 2}
