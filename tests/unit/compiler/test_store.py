"""Machine code on disk: found by whoever may run it, never run where it is damaged or another's, and no call fails."""

import fcntl
import importlib
import importlib.util
import multiprocessing
import os
import re
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import machine, store
from graphfeed.ops.cpu.compiler.folders import SOURCES, Notices
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.machine import processor
from graphfeed.ops.cpu.compiler.store import file_lock, kernel_digest, stored_names
from graphfeed.ops.cpu.jit import kernel
from tests.stand_ins.waiting import wait_until
from tests.unit.compiler.bare import printed
from tests.unit.compiler.kernels import (
    add,
    anew,
    double,
    loads_of,
    make_array,
    scale,
    was_compiled,
)

SUMS = """
from graphfeed.ops.cpu.jit import kernel

@kernel
def add(left: int, right: int) -> int:
    return left + right
"""


WARM = """
import logging
import numpy as np
logging.disable()  # On a busy machine, compiling takes long enough to be said.
from tests.unit.compiler.kernels import double
numbers = np.arange(4)
double(numbers)
print(numbers.tolist(), "numba" in sys.modules)
"""


def files(folder: Path) -> list[str]:
    """Return the names of the files of machine code, written or being written."""
    return sorted(path.name for path in folder.iterdir() if path.suffix in {".code", ".part"})


@pytest.fixture
def module(kept: Path, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that imports a kernel as a new process does: `sums.py`, as it is then."""
    (tmp_path / "sums.py").write_text(SUMS)

    def start() -> Any:
        kernel_digest.cache_clear()
        spec = importlib.util.spec_from_file_location("sums", tmp_path / "sums.py")
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found.add

    yield start
    kernel_digest.cache_clear()


def age(path: Path) -> None:
    """Make a file some days old."""
    os.utime(path, (time.time() - 1e6,) * 2)


def test_a_kernel_is_compiled_once_for_each_choice_of_dtypes(kept: Path) -> None:
    single, wide = ("int32", "float32"), ("int32", "float64")
    assert [was_compiled(scale, dtypes) for dtypes in (single, wide, single, wide)] == [True, True, False, False]
    assert [name.split(".")[-4:-2] for name in files(kept)] == [["scale", "int32-float32"], ["scale", "int32-float64"]]


def test_a_process_that_finds_its_kernels_imports_no_numba(kept: Path) -> None:
    assert printed(WARM) == "[0, 2, 4, 6] True\n"
    assert printed(WARM) == "[0, 2, 4, 6] False\n"


def test_a_damaged_file_is_not_run_but_compiled_anew(kept: Path) -> None:
    assert was_compiled(double)
    (name,) = files(kept)
    path, whole = kept / name, (kept / name).read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:middle], whole[:5], b"", changed, whole + b"more"):
        path.write_bytes(damaged)
        numbers = np.arange(3)
        (load,) = loads_of(partial(anew(double), numbers))
        assert load.compiled, damaged[:50]
        assert numbers.tolist() == [0, 2, 4]
        assert files(kept) == [name]
        assert not was_compiled(double)


def test_a_file_that_others_can_write_to_is_not_run_but_compiled_anew(kept: Path) -> None:
    before = os.umask(0)
    try:
        assert was_compiled(double)
    finally:
        os.umask(before)
    (name,) = files(kept)
    path = kept / name
    assert path.stat().st_mode & 0o777 == 0o644, "no other user may write to it, whatever the umask"
    path.chmod(0o646)
    assert [was_compiled(double), was_compiled(double)] == [True, False]
    path.unlink()
    os.mkfifo(path)
    assert [was_compiled(double), was_compiled(double)] == [True, False]
    assert files(kept) == [name]


def test_a_file_under_another_name_is_not_run_but_compiled_anew(kept: Path) -> None:
    """Those who can write to the folder around the user's own can put another there, with links to the user's files."""
    assert [was_compiled(add), was_compiled(double)] == [True, True]
    added, doubled = (kept / f"{stored_names(kernel, ())[1]}.code" for kernel in (add, double))
    doubled.unlink()
    doubled.symlink_to(added)
    assert [was_compiled(double), was_compiled(double), was_compiled(add)] == [True, False, False]


def test_a_link_in_place_of_a_lock_is_not_followed(kept: Path, tmp_path: Path) -> None:
    (kept / f"{stored_names(double, ())[1]}.lock").symlink_to(tmp_path / "elsewhere")
    assert [was_compiled(double), was_compiled(double)] == [True, False]
    assert not (tmp_path / "elsewhere").exists()


def test_another_compiler_and_another_machine_have_files_of_their_own(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert was_compiled(double)
    name, features = processor()
    for others, change in enumerate(
        [
            (llvmlite, "__version__", "0.1"),
            (machine, "numba_version", lambda: "0.1"),
            (machine, "processor", lambda: ("generic", features)),
            (machine, "processor", lambda: (name, "")),
        ]
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*change)
            assert [was_compiled(double), was_compiled(double)] == [True, False]
        assert len(files(kept)) == 2 + others, "machines of both kinds share the folder"


def test_other_sources_are_compiled_anew_and_what_came_of_the_old_ones_is_removed(
    module: Callable[[], Any], kept: Path, tmp_path: Path
) -> None:
    age(tmp_path / "sums.py")
    assert [was_compiled(module()), was_compiled(module())] == [True, False]
    (first,) = files(kept)
    (tmp_path / "sums.py").write_text(SUMS.replace("left + right", "left - 1 * right"))
    age(tmp_path / "sums.py")
    other = module()
    assert was_compiled(other)
    assert other(7, 2) == 5
    (last,) = files(kept)
    assert last != first
    assert not was_compiled(module())


def test_a_module_that_changed_after_its_import_is_not_kept_under_its_new_content(
    module: Callable[[], Any], tmp_path: Path
) -> None:
    age(tmp_path / "sums.py")
    running = module()
    (tmp_path / "sums.py").write_text(SUMS.replace("left + right", "left + right + 1"))
    assert running(2, 3) == 5
    age(tmp_path / "sums.py")
    assert module()(2, 3) == 6


def imported(path: Path) -> set[str]:
    """Return what a module of kernels takes from the package."""
    found = re.findall(r"^(?:from|import) (graphfeed\S*)(?: import (.*))?", path.read_text(), re.MULTILINE)
    return {module if name != "random" else f"{module}.{name}" for module, name in found}


def test_kernels_take_nothing_from_modules_that_the_digest_leaves_out() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if SOURCES / "compiler" not in path.parents]
    others = {path: {name for name in imported(path) if not name.startswith("graphfeed.ops.cpu")} for path in paths}
    assert {path for path, found in others.items() if not found <= {"graphfeed.ops.random"}} == set()
    assert Path(importlib.import_module("graphfeed.ops.random").__file__ or "") == store.CONSTANTS


def test_what_killed_processes_and_other_sources_left_is_removed(kept: Path) -> None:
    stem, name = stored_names(double, ())
    names = {
        "code of other sources": f"{stem}0123456789abcdef.code",
        "lock of other sources": f"{stem}0123456789abcdef.lock",
        "part of other sources": f"{stem}0123456789abcdef.00000000.part",
        "part": f"{name}.00000000.part",
        "part that is written now": f"{name}.00000001.part",
        "lock": f"{name}.lock",
        "of another machine": f"{stem[:-3]}abc0123456789abcdef.code",
        "of another kernel": f"{stem.replace('double', 'doubles')}0123456789abcdef.lock",
    }
    for kind, path in ((kind, kept / file) for kind, file in names.items()):
        path.write_bytes(b"")
        if kind != "part that is written now":
            os.utime(path, (0, 0))
    assert was_compiled(double)
    stay = {names[kind] for kind in ("part that is written now", "lock", "of another machine", "of another kernel")}
    left = {path.name for path in kept.iterdir()} - {"compiling"}  # on a busy machine
    assert left == {*stay, f"{name}.code"}


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the size of all files to some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_kernels_compile_and_leave_nothing(kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk():
        assert [was_compiled(double), was_compiled(add)] == [True, True]
    assert files(kept) == []
    # On a busy machine it may also be said that kernels are being compiled.
    (message,) = [record.message for record in caplog.records if "can't be saved" in record.message]
    assert message.startswith(f"compiled kernels can't be saved in {kept}: File too large; free some space, or set ")
    assert [was_compiled(double), was_compiled(double)] == [True, False]
    shutil.rmtree(kept)
    assert was_compiled(double)


def test_processes_that_start_together_compile_a_kernel_once(kept: Path) -> None:
    fork = multiprocessing.get_context("fork")
    answers, begin = fork.SimpleQueue(), fork.Barrier(3)

    def run() -> None:
        begin.wait(60)
        answers.put(was_compiled(double))

    children = [fork.Process(target=run) for _ in range(3)]
    for child in children:
        child.start()
    assert sorted(answers.get() for _ in children) == [False, False, True]
    for child in children:
        child.join()


def is_free(lock: Path) -> bool:
    """Return whether a lock is free."""
    with lock.open("w") as file:
        return store.locked(file.fileno())


def test_a_process_that_is_killed_lets_the_next_one_in(kept: Path) -> None:
    fork = multiprocessing.get_context("fork")
    lock = kept / f"{stored_names(double, ())[1]}.lock"

    def hold() -> None:
        with file_lock(lock):
            (kept / "held").touch()
            time.sleep(100)

    child = fork.Process(target=hold)
    child.start()
    wait_until((kept / "held").exists)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    start = time.monotonic()
    assert was_compiled(double)
    assert time.monotonic() - start < store.WAIT_SECONDS / 2
    child.join()


def test_a_child_that_was_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    stop = fork.Event()
    child = fork.Process(target=stop.wait, args=(60,))
    lock = tmp_path / "lock"
    with file_lock(lock):
        child.start()
    assert is_free(lock)
    stop.set()
    child.join()


def test_nobody_waits_for_ever(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WAIT_SECONDS", 0.05)
    lock = kept / f"{stored_names(double, ())[1]}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [was_compiled(double), was_compiled(double)] == [True, False]
        assert not is_free(lock)


@kernel
def refuse(number: int) -> int:
    """Do what kernels can't."""
    if number < 0:
        raise ValueError("negative")
    return number


@pytest.mark.parametrize("wrong", [make_array, refuse])
def test_what_needs_numba_when_it_runs_is_refused_by_name(wrong: Kernel) -> None:
    with pytest.raises(NotImplementedError, match=rf"{wrong.name} needs \['.*'\]: kernels can't create arrays or "):
        wrong(3)
    assert wrong.codes == {}


RUN = """
import logging
import numpy as np
logging.disable()  # On a busy machine, compiling takes long enough to be said.
from graphfeed.ops.cpu.compiler.machine import processor
from tests.unit.compiler.kernels import scale
out = np.empty(3)
scale(np.array([1, -2, 3]), np.array([0.1, 0.2, 0.3]), out)
print(processor()[0], out.tobytes().hex())
"""


def test_threads_that_need_the_same_kernel_link_it_once() -> None:
    add(1, 1)  # so that it is on disk
    barrier = threading.Barrier(8, timeout=20)

    def call(fresh: Kernel, number: int) -> None:
        barrier.wait()
        assert fresh(number, 1) == number + 1

    def call_from_threads(fresh: Kernel) -> None:
        list(pool.map(partial(call, fresh), range(8)))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            assert len(loads_of(partial(call_from_threads, anew(add)))) == 1


@pytest.mark.slow
def test_it_is_made_for_this_processor_unless_another_one_is_named(kept: Path) -> None:
    found = {name: printed(RUN, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="").split() for name in ("generic", "")}
    names, results = zip(*found.values(), strict=True)
    assert names == ("generic", processor()[0])
    assert len(set(results)) == 1
    assert len(list(kept.glob("*.scale.*.code"))) == 2


COMPILING = "graphfeed is compiling its kernels for this machine, "


def compile_for(seconds: float, clock: Notices, folder: Path | None = None) -> None:
    """Record some seconds of compilation."""
    with clock.timing(folder):
        clock.spent += seconds


def test_of_the_processes_of_a_run_one_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def say() -> int:
        compile_for(2.5, Notices(), tmp_path)  # as in another process
        return len(caplog.records)

    assert [say(), say()] == [1, 1]
    (note,) = tmp_path.iterdir()
    os.utime(note, (0, 0))  # a run of long ago
    assert [say(), say()] == [2, 2]


def test_a_program_that_has_set_up_no_logging_sees_it_on_stderr(kept: Path) -> None:
    body = """
import contextlib, io
from graphfeed.ops.cpu.compiler import folders
from tests.unit.compiler.kernels import add
folders.SILENT_SECONDS = 0.0
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    add(1, 2)
print(stderr.getvalue(), end="")
"""
    assert printed(body) == f"{COMPILING}once, and keeps them in {kept}\n"
    assert printed(body) == ""
