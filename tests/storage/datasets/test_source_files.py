import os
from pathlib import Path

from graphfeed.storage.datasets.source_files import describe_file, digest_of, find_change


def age(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def test_size_and_time_tell_a_change(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    known = [describe_file(tmp_path, "a", digest=False)]
    assert find_change(tmp_path, known) is None
    age(path)
    assert find_change(tmp_path, known) == "a"
    path.write_text("three")
    assert find_change(tmp_path, known) == "a"


def test_a_digest_settles_another_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    known = [describe_file(tmp_path, "a", digest=True)]
    assert known[0]["digest"] == digest_of(path)
    age(path)
    assert find_change(tmp_path, known) is None
    path.write_text("two")
    assert find_change(tmp_path, known) == "a"


def test_a_file_that_is_gone_has_not_changed(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    known = [describe_file(tmp_path, "a", digest=False)]
    (tmp_path / "a").unlink()
    assert find_change(tmp_path, known) is None


def test_it_may_move(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a").touch()
    known = [describe_file(tmp_path / "here", "a", digest=False)]
    (tmp_path / "here").rename(tmp_path / "there")
    assert find_change(tmp_path / "there", known) is None
