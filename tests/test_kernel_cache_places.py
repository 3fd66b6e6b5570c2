"""Where machine code is kept, and that a call works whatever became of it."""

import gc
import importlib.util
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import graphfeed
from graphfeed.ops.cpu import kernel_cache

SOURCE = """
from graphfeed.ops.cpu.jit import kernel

@kernel
def add(left, right):
    return left + right
"""
Start = Callable[[], Any]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that imports a kernel as a new process would."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "sums.py").write_text(SOURCE)
    for name, folder in (("HOME", "home"), ("TMPDIR", "tmp")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    for name in ("GRAPHFEED_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def load() -> Any:
        kernel_cache.places_for.cache_clear()
        kernel_cache.digest_of.cache_clear()
        monkeypatch.setattr(kernel_cache, "SAID", set())
        monkeypatch.setattr(kernel_cache, "COMPILE_CLOCK", kernel_cache.CompileClock())
        spec = importlib.util.spec_from_file_location("sums", sources / "sums.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.add

    return load


def hits(add: Any) -> int:
    """Call a kernel, and return how often its machine code was found on disk."""
    assert add(2, 3) == 5
    return sum(add.stats.cache_hits.values())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in {".nbc", ".part"})


def block(folder: Path) -> None:
    """Let nobody make a folder, not even root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("a file")


def test_machine_code_is_kept_beside_the_sources(start: Start, tmp_path: Path) -> None:
    assert [hits(start()), hits(start())] == [0, 1]
    (path,) = files(tmp_path)
    assert path.parent == tmp_path / "sources" / "__pycache__"


def test_it_is_kept_where_the_user_says(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(tmp_path / "numba"))
    assert [hits(start()), hits(start())] == [0, 1]
    assert files(tmp_path) == files(tmp_path / "numba")
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(tmp_path / "own"))
    assert [hits(start()), hits(start())] == [0, 1]
    assert len(files(tmp_path / "own")) == len(files(tmp_path / "numba")) == 1


def test_beside_sources_that_cannot_be_written_to_the_users_folders_are_next(start: Start, tmp_path: Path) -> None:
    block(tmp_path / "sources" / "__pycache__")
    assert [hits(start()), hits(start())] == [0, 1]
    assert len(files(tmp_path / "home")) == 1
    block(tmp_path / "home")
    assert [hits(start()), hits(start())] == [0, 1]
    (path,) = files(tmp_path / "tmp")
    assert path.parent.parent == tmp_path / "tmp" / f"graphfeed-{os.getuid()}"
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700


def test_without_any_folder_kernels_compile_and_one_warning_says_so(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("sources/__pycache__", "home", f"tmp/graphfeed-{os.getuid()}"):
        block(tmp_path / folder)
    add = start()
    assert hits(add) == 0
    assert add(2.5, 3.0) == 5.5
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "graphfeed can't save its compiled kernels, so each process compiles them anew; set GRAPHFEED_CACHE_DIR to a "
        "folder to which you alone can write"
    ]


def test_nobody_waits_for_a_home_that_is_none(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block(tmp_path / "sources" / "__pycache__")
    monkeypatch.setattr(kernel_cache, "AppDirs", lambda **_: type("Dirs", (), {"user_cache_dir": "~/.cache/graphfeed"}))
    monkeypatch.chdir(tmp_path)
    assert hits(start()) == 0
    assert not (tmp_path / "~").exists()
    assert len(files(tmp_path / "tmp")) == 1


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed"])
def test_a_damaged_file_is_thrown_away(damage: str, start: Start, tmp_path: Path) -> None:
    assert hits(start()) == 0
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    middle = len(whole) // 2
    wrong = {"cut": whole[:middle], "emptied": b"", "changed": whole[:middle] + b"?" + whole[middle + 1 :]}
    path.write_bytes(wrong[damage])
    assert [hits(start()), hits(start())] == [0, 1]
    assert files(tmp_path) == [path]


def test_files_of_other_versions_are_not_looked_at(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hits(start()) == 0
    (first,) = files(tmp_path)
    monkeypatch.setattr("numba.__version__", "0.1")
    assert [hits(start()), hits(start())] == [0, 1]
    assert len(files(tmp_path)) == 2
    with (tmp_path / "sources" / "sums.py").open("a") as source:
        source.write("SINCE = 'a later release'\n")
    assert [hits(start()), hits(start())] == [0, 1]
    (last,) = files(tmp_path)
    assert last != first


def test_what_killed_processes_and_other_versions_left_is_removed(start: Start, tmp_path: Path) -> None:
    assert hits(start()) == 0
    (path,) = files(tmp_path)
    sources = kernel_cache.digest_of(tmp_path / "sources" / "sums.py")
    folder, (name, digest) = path.parent, path.stem.split(f".{sources}.")
    names = {
        "lock of another version": f"{name}.0123456789ab.{digest}.lock",
        "part of another version": f"{name}.0123456789ab.{digest}.00000000.part",
        "part": f"{name}.{sources}.{digest}.00000000.part",
        "part that is written now": f"{name}.{sources}.{digest}.00000001.part",
        "lock": f"{name}.{sources}.{digest}.lock",
        "of another kernel": f"{name}s.0123456789ab.{digest}.lock",
    }
    kept = {names[kind] for kind in ("part that is written now", "lock", "of another kernel")}
    for left in names.values():
        (folder / left).touch()
        if left != names["part that is written now"]:
            os.utime(folder / left, (0, 0))
    path.unlink()
    assert hits(start()) == 0
    assert {file.name for file in folder.iterdir() if file.suffix in {".nbc", ".lock", ".part"}} == kept | {path.name}


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_kernels_compile_and_leave_nothing(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add = start()
    with full_disk():
        assert hits(add) == 0
        assert add(2.5, 3.0) == 5.5
    assert files(tmp_path) == []
    # On a busy machine it may also be said that kernels are being compiled.
    (message,) = [record.message for record in caplog.records if "can't be saved" in record.message]
    assert message.startswith(f"compiled kernels can't be saved in {tmp_path}/sources/__pycache__: File too large;")
    assert "GRAPHFEED_CACHE_DIR" in message


def test_a_folder_that_others_can_write_to_is_not_used(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(shared))
    assert hits(start()) == 0
    shared.chmod(0o777)
    (shared_file,) = files(shared)
    assert hits(start()) == 0
    assert files(tmp_path) == sorted([shared_file, *files(tmp_path / "sources")])
    (message,) = [record.message for record in caplog.records]
    assert message == f"compiled kernels are not kept in GRAPHFEED_CACHE_DIR, {shared}: others can write to it"


@pytest.mark.parametrize("place", ["GRAPHFEED_CACHE_DIR", "NUMBA_CACHE_DIR", "home"])
def test_a_link_to_a_folder_on_another_disk_is_followed(
    place: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scratch, link = tmp_path / "scratch", tmp_path / "link"
    scratch.mkdir(mode=0o755)
    if place == "home":
        block(tmp_path / "sources" / "__pycache__")
        link = tmp_path / "home" / ".cache" / "graphfeed"
        link.parent.mkdir()
        monkeypatch.setattr(kernel_cache, "AppDirs", lambda **_: type("Dirs", (), {"user_cache_dir": str(link)}))
    elif place == "NUMBA_CACHE_DIR":
        monkeypatch.setattr(kernel_cache.config, "CACHE_DIR", str(link))
    else:
        monkeypatch.setenv(place, str(link))
    link.symlink_to(scratch)
    assert [hits(start()), hits(start())] == [0, 1]
    assert len(files(scratch)) == 1
    assert files(tmp_path) == files(scratch)
    assert not caplog.records


@pytest.mark.parametrize("kind", ["a file", "a link to itself", "a link inside"])
def test_what_is_no_folder_is_said(
    kind: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = tmp_path / "given"
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(given))
    if kind == "a file":
        given.write_text("")
    elif kind == "a link to itself":
        given.symlink_to(given)
    else:
        (inside, _), *_ = kernel_cache.candidates(tmp_path / "sources")
        given.mkdir(mode=0o755)
        inside.symlink_to(tmp_path / "home")
    assert hits(start()) == 0
    assert len(files(tmp_path / "sources")) == 1
    (message,) = [record.message for record in caplog.records]
    assert message == f"compiled kernels are not kept in GRAPHFEED_CACHE_DIR, {given}: it is no folder"


def test_a_link_in_the_temporary_folder_is_not_followed(start: Start, tmp_path: Path) -> None:
    for folder in ("sources/__pycache__", "home"):
        block(tmp_path / folder)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "tmp" / f"graphfeed-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert hits(start()) == 0
    assert files(tmp_path) == []


def test_a_folder_of_somebody_elses_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_cache.is_trusted(tmp_path)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(kernel_cache, "FOLDER", Path(os.sep))
    assert kernel_cache.is_trusted(tmp_path) == (owner == 0)


def test_machine_code_that_cannot_be_added_to_is_read(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert hits(start()) == 0
    monkeypatch.setattr(kernel_cache, "is_writable", lambda folder: False)
    assert hits(start()) == 1
    assert not caplog.records


def test_compiling_for_long_is_said_once(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add = start()
    assert hits(add) == 0
    assert not caplog.records
    monkeypatch.setattr(kernel_cache, "SILENT_SECONDS", 0.0)
    assert add(2.5, 3.0) == 5.5
    assert add(2.5, 3) == 5.5
    where = tmp_path / "sources" / "__pycache__"
    (record,) = caplog.records
    assert record.message == f"graphfeed is compiling its kernels for this machine, once, and keeps them in {where}"
    caplog.clear()
    assert hits(start()) == 1
    assert not caplog.records


def test_a_module_that_changed_after_its_import_is_not_kept_under_its_new_content(start: Start, tmp_path: Path) -> None:
    source = tmp_path / "sources" / "sums.py"
    running = start()
    source.write_text(SOURCE.replace("left + right", "left + right + 1"))
    assert running(2, 3) == 5
    assert start()(2, 3) == 6


def kernel_modules() -> list[Path]:
    return [path for path in kernel_cache.FOLDER.rglob("*.py") if path.name not in {"__init__.py", "kernel_cache.py"}]


@pytest.mark.parametrize("path", kernel_modules(), ids=lambda path: path.stem)
def test_machine_code_depends_on_all_modules_whose_functions_a_kernel_can_call(path: Path) -> None:
    package = kernel_cache.PACKAGE
    module = importlib.import_module(".".join((package.name, *path.relative_to(package).with_suffix("").parts)))
    values = (getattr(value, "py_func", value) for value in vars(module).values())
    called = {str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in values}
    called = {name for name in called if name.startswith("graphfeed.") and name != kernel_cache.__name__}
    files = {Path(str(sys.modules[name].__file__)) for name in called} - {path}
    assert files <= kernel_cache.imported_by(path)


def test_a_kernel_does_not_depend_on_modules_that_it_does_not_import() -> None:
    gather, permute = (kernel_cache.FOLDER / name for name in ("rows/gather.py", "sampling/permute.py"))
    assert gather not in kernel_cache.parts_of(permute)
    assert kernel_cache.FOLDER / "random.py" in kernel_cache.parts_of(permute)
    assert kernel_cache.PACKAGE / "ops" / "random.py" in kernel_cache.parts_of(permute)  # through the one above


@pytest.mark.slow
def test_a_read_only_package_without_a_home_works(tmp_path: Path) -> None:
    package = Path(shutil.copytree(Path(graphfeed.__file__).parent, tmp_path / "graphfeed"))
    for folder in (*package.rglob("__pycache__"), tmp_path / f"graphfeed-{os.getuid()}"):
        block(folder)
    for folder in {path.parent for path in package.rglob("*.py")}:
        if not (folder / "__pycache__").exists():
            block(folder / "__pycache__")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "HOME": "/dev/null",
        "TMPDIR": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    script = "import graphfeed as gf; print(gf.from_coo(([0, 1], [1, 2]), num_nodes=3).indices.tolist())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.strip() == "[0, 1]", done.stderr
    assert done.stderr.count("GRAPHFEED_CACHE_DIR") == 1


def test_threads_find_what_a_module_imports_at_the_same_time() -> None:
    paths = kernel_modules()
    thresholds = gc.get_threshold()

    def let_others_go_on(*_: Any) -> None:
        """Do what a finalizer may: another thread runs in the middle of what collects garbage."""
        time.sleep(0)

    gc.callbacks.append(let_others_go_on)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(kernel_cache.imported_by.__wrapped__, 4 * paths))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(let_others_go_on)
    assert found == 4 * [kernel_cache.imported_by(path) for path in paths]
