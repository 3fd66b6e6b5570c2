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
from graphfeed.ops.cpu.compiler.folders import candidates, is_trusted, user_cache
from tests.ops.cpu.compiler.kernels import add, was_compiled

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
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(places / "numba"))
    assert loads() == [True, False]
    assert codes(places) == codes(places / "numba")
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "own"))
    assert loads() == [True, False]
    assert len(codes(places / "own")) == len(codes(places / "numba")) == 1


def test_beside_sources_that_cannot_be_written_to_the_users_folders_are_next(places: Path) -> None:
    block(places / "sources" / "__pycache__")
    assert loads() == [True, False]
    assert codes(places) == codes(places / "home" / ".cache" / "graphfeed")
    block(places / "home")
    assert loads() == [True, False]
    (path,) = codes(places)
    assert path.parent.parent == places / "tmp" / f"graphfeed-{os.getuid()}"
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700


def test_without_any_folder_kernels_compile_and_one_warning_says_so(
    places: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("sources/__pycache__", "home", f"tmp/graphfeed-{os.getuid()}"):
        block(places / folder)
    assert loads(3) == [True, True, True]
    assert codes(places) == []
    assert warnings(caplog) == [
        "graphfeed can't save its compiled kernels, so each process compiles them again; set GRAPHFEED_CACHE_DIR to a "
        "folder that only you can write to"
    ]


def test_nobody_waits_for_a_home_that_is_none(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block(places / "sources" / "__pycache__")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")
    monkeypatch.chdir(places)
    assert not user_cache().is_absolute()
    assert loads() == [True, False]
    assert not (places / "~").exists()
    assert codes(places) == codes(places / "tmp")


@pytest.mark.parametrize(("mode", "inside"), [(0o777, False), (0o775, True)])
def test_a_folder_that_others_can_write_to_is_not_used(
    mode: int, inside: bool, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = places / "shared"
    (places / "sources").chmod(0o755)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(shared))
    assert loads(1) == [True]
    (theirs,) = codes(shared)
    (theirs.parent if inside else shared).chmod(mode)
    assert loads() == [True, False]
    assert codes(places) == sorted([theirs, *codes(places / "sources")])
    assert warnings(caplog) == [
        f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {shared}: other users can write to it"
    ]


def test_a_folder_of_a_group_that_can_write_to_the_package_is_used(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (places / "sources").chmod(0o775)
    (places / "shared").mkdir()
    (places / "shared").chmod(0o775)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "shared"))
    assert loads() == [True, False]
    assert codes(places) == codes(places / "shared")
    assert warnings(caplog) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_of_somebody_elses_is_not_used(
    inside: bool, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    assert loads(1) == [True]
    (theirs,) = codes(given)
    os.chown(theirs.parent if inside else given, STRANGER, -1)
    assert loads() == [True, False]
    assert codes(places) == sorted([theirs, *codes(places / "sources")])
    assert warnings(caplog) == [
        f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {given}: other users can write to it"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
def test_a_folder_of_the_owner_of_the_package_is_used(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "given"))
    (places / "given").mkdir(mode=0o755)
    for folder in ("sources", "given"):
        os.chown(places / folder, STRANGER, -1)
    assert loads() == [True, False]
    assert codes(places) == codes(places / "given")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
def test_a_folder_of_a_group_that_cannot_write_to_the_package_is_not_used(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("sources", "given"):
        (places / folder).mkdir(exist_ok=True)
        (places / folder).chmod(0o775)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(places / "given"))
    os.chown(places / "given", -1, STRANGER)
    assert loads() == [True, False]
    assert codes(places) == codes(places / "sources")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
def test_other_users_trust_the_folders_of_root(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(places / "sources", STRANGER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    assert is_trusted(places.lstat())


@pytest.mark.skipif(os.geteuid() == 0, reason="root's folders are used by all users")
def test_a_folder_of_another_user_than_root_is_not_trusted(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_trusted(places.lstat())
    owner = places.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(folders, "SOURCES", Path(os.sep))
    assert not is_trusted(places.lstat())


@pytest.mark.parametrize("place", ["GRAPHFEED_CACHE_DIR", "NUMBA_CACHE_DIR", "home", "XDG_CACHE_HOME"])
def test_a_link_to_a_folder_on_another_disk_is_followed(
    place: str, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scratch, link = places / "scratch", places / "link"
    scratch.mkdir(mode=0o755)
    if not place.endswith("_DIR"):
        block(places / "sources" / "__pycache__")
        link = places / "home" / ".cache" / "graphfeed"
        link.parent.mkdir()
    if place != "home":
        monkeypatch.setenv(place, str(link.parent if place.startswith("XDG") else link))
    link.symlink_to(scratch)
    assert loads() == [True, False]
    assert len(codes(scratch)) == 1
    assert codes(places) == codes(scratch)
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", ["a file", "a link to itself", "a link inside"])
def test_what_is_no_folder_is_said(
    kind: str, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = places / "given"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    if kind == "a file":
        given.write_text("")
    elif kind == "a link to itself":
        given.symlink_to(given)
    else:
        (inside, _), *_ = candidates()
        given.mkdir(mode=0o755)
        inside.symlink_to(places / "home")
    assert loads(1) == [True]
    assert codes(places) == codes(places / "sources")
    assert warnings(caplog) == [f"compiled kernels are not saved in GRAPHFEED_CACHE_DIR, {given}: it is not a folder"]


def test_a_link_in_the_temporary_folder_is_not_followed(places: Path) -> None:
    for folder in ("sources/__pycache__", "home"):
        block(places / folder)
    (places / "elsewhere").mkdir(mode=0o700)
    (places / "tmp" / f"graphfeed-{os.getuid()}").symlink_to(places / "elsewhere")
    assert loads() == [True, True]
    assert codes(places) == []


@pytest.mark.slow
def test_a_read_only_package_without_a_home_works(tmp_path: Path) -> None:
    package = Path(shutil.copytree(Path(graphfeed.__file__).parent, tmp_path / "graphfeed"))
    for folder in {path.parent for path in package.rglob("*.py")}:
        block(folder / "__pycache__")
    block(tmp_path / f"graphfeed-{os.getuid()}")
    settings = {"PYTHONPATH": str(tmp_path), "HOME": "/dev/null", "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}
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
