"""Machine code is only stored in folders to which no other user can write."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphfeed
from graphfeed.ops.cpu.compiler import folders
from graphfeed.ops.cpu.compiler.folders import candidates, is_trusted
from tests.unit.compiler.kernels import add, was_compiled

pytestmark = pytest.mark.usefixtures("places")

STRANGER = 54321
"""The id of a user that is neither root nor the one that runs the tests."""


def codes(folder: Path) -> list[Path]:
    """Return the files of machine code."""
    return sorted(folder.rglob("*.code"))


def loads(count: int = 2) -> list[bool]:
    """Load a kernel as some processes would, one after the other; tell which of them compiled it."""
    found = []
    for _ in range(count):
        folders.folders.cache_clear()
        found.append(was_compiled(add))
    return found


def block(folder: Path) -> None:
    """Prevent the creation of a folder, even by root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said, other than that a busy machine compiles for long."""
    found = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    return [message for message in found if "is compiling" not in message]


def test_machine_code_is_kept_beside_the_sources(places: Path) -> None:
    assert loads() == [True, False]
    (path,) = codes(places)
    assert path.parent == places / "sources" / "__pycache__"


def test_it_is_kept_where_the_user_says(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "own"))
    assert loads() == [True, False]
    assert codes(places) == codes(places / "own")


@pytest.mark.parametrize("first", ["", "XDG_CACHE_HOME"])
def test_kernels_in_any_folder_are_read_whichever_folder_new_ones_are_kept_in(
    first: str, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first:
        block(places / "sources" / "__pycache__")
        monkeypatch.setenv(first, str(places / "first"))
    assert loads(1) == [True]
    kept = codes(places)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "own"))
    assert loads() == [False, False]
    assert codes(places) == kept
    kept[0].chmod(0o646)
    assert loads() == [True, False]
    assert codes(places / "own") != []
    assert not (places / "home" / ".cache").exists(), "folders that are not needed are not created"


def test_beside_sources_that_cannot_be_written_to_the_user_s_folder_is_next(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    block(places / "sources" / "__pycache__")
    assert loads() == [True, False]
    assert codes(places) == codes(places / "home" / ".cache" / "graphfeed")
    shutil.rmtree(places / "home" / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    monkeypatch.chdir(places)
    assert loads() == [True, True], "without any folder, each process compiles"
    assert codes(places) == []
    assert not (places / "~").exists()
    (warning,) = warnings(caplog)
    assert "set GRAPHFEED_CACHE_DIR to a folder that only you can write to" in warning


def is_refused(given: Path, why: str, places: Path, caplog: pytest.LogCaptureFixture) -> bool:
    """Return whether kernels are kept beside the sources rather than in a given folder, and why is said once."""
    before = codes(given)
    said = f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {given}: {why}"
    return (
        loads() == [True, False]
        and codes(places / "sources") != []
        and codes(given) == before
        and warnings(caplog) == [said]
    )


def test_a_folder_that_others_can_write_to_is_not_used(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    (places / "sources").chmod(0o755)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    assert loads(1) == [True]
    codes(given)[0].parent.chmod(0o775)
    assert is_refused(given, "other users can write to it", places, caplog)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
def test_a_folder_of_somebody_elses_is_not_used(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    assert loads(1) == [True]
    os.chown(codes(given)[0].parent, STRANGER, -1)
    assert is_refused(given, "other users can write to it", places, caplog)


def test_what_lies_in_a_folder_that_others_can_write_to_is_not_run(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    (places / "sources").chmod(0o755)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    assert loads(1) == [True]
    given.chmod(0o1777)
    assert is_refused(given, "other users can write to it", places, caplog)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given / "own"))
    shutil.rmtree(places / "sources" / "__pycache__")
    assert loads() == [True, False]
    assert codes(given / "own") != [], "a new folder in it is the user's"


def test_folders_of_the_user_of_root_and_of_those_who_can_write_to_the_package_are_trusted(places: Path) -> None:
    package, me = (places / "sources").stat(), os.geteuid()
    other_group = package.st_gid + 1
    for package_mode, mode, user, group, expected in (
        (0o755, 0o755, me, package.st_gid, True),
        (0o755, 0o755, 0, other_group, True),
        (0o755, 0o755, STRANGER, package.st_gid, False),
        (0o755, 0o775, me, package.st_gid, False),
        (0o775, 0o775, me, package.st_gid, True),
        (0o775, 0o775, me, other_group, False),
        (0o775, 0o777, me, package.st_gid, False),
    ):
        (places / "sources").chmod(package_mode)
        assert is_trusted(os.stat_result((mode, 0, 0, 1, user, group, 0, 0, 0, 0))) is expected, (mode, user, group)


@pytest.mark.parametrize("place", ["GRAPHFEED_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_link_to_a_folder_on_another_disk_is_followed(
    place: str, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scratch, link = places / "scratch", places / "link" / "graphfeed"
    scratch.mkdir(mode=0o755)
    link.parent.mkdir()
    link.symlink_to(scratch)
    block(places / "sources" / "__pycache__")
    monkeypatch.setenv(place, str(link.parent if place.startswith("XDG") else link))
    assert loads() == [True, False]
    assert len(codes(scratch)) == 1
    assert codes(places) == codes(scratch)
    assert warnings(caplog) == []


def test_what_is_no_folder_is_said(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    inside, *_ = candidates()
    given.mkdir(mode=0o755)
    inside.symlink_to(places / "home")
    assert is_refused(given, "it is not a folder", places, caplog)


@pytest.mark.slow
def test_a_read_only_package_without_a_home_works(tmp_path: Path) -> None:
    package = Path(shutil.copytree(Path(graphfeed.__file__).parent, tmp_path / "graphfeed"))
    for folder in {path.parent for path in package.rglob("*.py")}:
        block(folder / "__pycache__")
    settings = {"PYTHONPATH": str(tmp_path), "HOME": "/dev/null", "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}
    settings["GRAPHFEED_KERNELS"] = "compile"
    script = "import graphfeed as gf; print(gf.from_coo(([0, 1], [1, 2]), num_nodes=3).indices.tolist())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.strip() == "[0, 1]", done.stderr
    assert done.stderr.count("GRAPHFEED_CACHE_DIR") == 1


def test_it_is_read_where_it_cannot_be_written_and_written_to_the_next_folder(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = places / "sources" / "__pycache__"
    monkeypatch.setattr(folders, "is_writable", lambda folder: folder != beside)
    assert loads() == [True, False]
    (path,) = codes(places / "home")
    path.rename(beside / path.name)
    assert loads() == [False, False]
    assert codes(places / "home") == []
