"""Machine code on disk: found by whoever may run it, never run where it is damaged or another's, and no call fails."""

import ast
import importlib.util
import os
import resource
import shutil
import sys
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

from graphfeed.ops.cpu.compiler import machine
from graphfeed.ops.cpu.compiler.build import all_kernels
from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.machine import processor
from graphfeed.ops.cpu.compiler.store import LOADING, kernel_digest, read_source, sources_of, stored_names
from graphfeed.ops.cpu.jit import kernel
from tests.stand_ins.forked import in_child
from tests.stand_ins.scripts import without_kernels
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


def forget() -> None:
    """Forget what was read from sources."""
    kernel_digest.cache_clear()
    read_source.cache_clear()


@pytest.fixture
def module(kept: Path, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that imports a kernel as a new process does: `sums.py`, as it is then."""
    (tmp_path / "sums.py").write_text(SUMS)

    def start() -> Any:
        forget()
        spec = importlib.util.spec_from_file_location("sums", tmp_path / "sums.py")
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found.add

    yield start
    forget()


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
    added, doubled = (kept / stored_names(kernel, ())[1] for kernel in (add, double))
    doubled.unlink()
    doubled.symlink_to(added)
    assert [was_compiled(double), was_compiled(double), was_compiled(add)] == [True, False, False]


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


def test_other_sources_are_compiled_anew(module: Callable[[], Any], kept: Path, tmp_path: Path) -> None:
    age(tmp_path / "sums.py")
    assert [was_compiled(module()), was_compiled(module())] == [True, False]
    (first,) = files(kept)
    (tmp_path / "sums.py").write_text(SUMS.replace("left + right", "left - 1 * right"))
    age(tmp_path / "sums.py")
    other = module()
    assert was_compiled(other)
    assert other(7, 2) == 5
    (last,) = {*files(kept)} - {first}
    assert last
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


def test_kernels_take_nothing_from_modules_that_the_digest_leaves_out() -> None:
    """Of each line that imports, the digest follows the first name only, if that is a module."""
    all_kernels()  # imports them
    for path in SOURCES.rglob("*.py"):
        if SOURCES / "compiler" in path.parents:
            continue
        sources = {own.resolve() for own in sources_of(path)}
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.Import) or "graphfeed" not in ast.unparse(node), path
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("graphfeed"):
                names = {f"{node.module}.{alias.name}" for alias in node.names} & sys.modules.keys()
                for name in names or {str(node.module)}:
                    assert Path(str(sys.modules[name].__file__)).resolve() in sources, (path, name)
    (permute,) = (path for path in SOURCES.rglob("permute.py"))
    names = {path.relative_to(SOURCES.parent).as_posix() for path in sources_of(permute)}
    assert {"random.py", "cpu/random.py", "cpu/jit.py", "cpu/instructions.py", "cpu/compiler/program.py"} <= names
    assert "cpu/sampling/negatives.py" not in names


def test_what_killed_processes_and_other_sources_left_is_removed_after_a_week(kept: Path) -> None:
    stem, name = stored_names(double, ())
    names = {
        "code of other sources": f"{stem}0123456789abcdef.code",
        "code of a copy in use": f"{stem}fedcba9876543210.code",
        "part": f"{name}.00000000.part",
        "part that is written now": f"{name}.00000001.part",
        "of another machine": f"{stem[:-3]}abc0123456789abcdef.code",
        "of another kernel": f"{stem.replace('double', 'doubles')}0123456789abcdef.code",
    }
    for kind, path in ((kind, kept / file) for kind, file in names.items()):
        path.write_bytes(b"")
        if kind not in ("part that is written now", "code of a copy in use"):
            os.utime(path, (0, 0))
    assert was_compiled(double)
    stay = names.keys() - {"code of other sources", "part"}
    assert {path.name for path in kept.iterdir()} == {name, *(names[kind] for kind in stay)}


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


def test_a_fork_waits_for_the_compiler(kept: Path) -> None:
    begun = threading.Event()

    def hold() -> None:
        with LOADING:
            begun.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    assert in_child(lambda: was_compiled(double)) == "True"
    assert not thread.is_alive()


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_constants_lie_beside_their_code_where_little_memory_is_free() -> None:
    body = """
import ctypes, mmap, pathlib
from llvmlite import binding
from graphfeed.ops.cpu.compiler import machine
code = machine.target_machine().emit_object(binding.parse_assembly('''
@table = internal constant [4 x i64] [i64 5, i64 6, i64 7, i64 8]
define i64 @look_up(i64 %place) {
  %found = getelementptr [4 x i64], [4 x i64]* @table, i64 0, i64 %place
  %value = load i64, i64* %found
  ret i64 %value
}'''))
machine.engine()
reserve, size = ctypes.CDLL(None).mmap, ctypes.c_size_t
reserve.restype, reserve.argtypes = ctypes.c_void_p, [ctypes.c_void_p, size, *[ctypes.c_int] * 3, ctypes.c_long]
flags, huge = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, 1 << 42  # without swap space
page = mmap.mmap(-1, mmap.PAGESIZE)
ranges = [line.split()[0].split("-") for line in pathlib.Path("/proc/self/maps").read_text().splitlines()]
ends = [(int(end, 16), int(start, 16)) for (_, end), (start, _) in zip(ranges, ranges[1:])]
for end, start in ends:
    if 0 < start - end < 1 << 36:
        reserve(end, start - end, 0, flags | 0x100000, -1, 0)  # at this address
assert reserve(None, huge, 0, flags, -1, 0)
page.close()  # the only free one above 4 TiB that nothing uses
address = machine.link("look_up", code)
print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(2))
"""
    assert printed(body) == "7\n"


def test_a_program_that_has_set_up_no_logging_sees_on_stderr_that_it_compiles(kept: Path) -> None:
    body = """
import contextlib, io
from graphfeed.ops.cpu.compiler import store
from tests.unit.compiler.kernels import add, double
store.SILENT_SECONDS = 0.0
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    add.code(()), double.code(())
print(stderr.getvalue(), end="")
"""
    assert printed(body) == f"graphfeed is compiling its kernels for this machine, once, and keeps them in {kept}\n"
    assert printed(body) == ""


def test_the_settings_of_the_program_change_no_code(tmp_path: Path) -> None:
    body = """
import logging, sys, warnings, numba
logging.disable()  # on a busy machine, compiling takes long enough to be logged
warnings.simplefilter("ignore")  # Numba finds no source of the function
assert numba.njit(lambda number: number * number)(3) == 9
from tests.unit.compiler.kernels import scale
scale.code(("int64", "float64"))
assert numba.config.OPT == int(sys.argv[1])
"""
    others = {"OPT": "0", "LOOP_VECTORIZE": "0", "BOUNDSCHECK": "1", "DEBUGINFO": "1", "EXTEND_VARIABLE_LIFETIMES": "1"}
    found = []
    for folder, settings in (("usual", {}), ("others", others)):
        numba = {f"NUMBA_{name}": value for name, value in settings.items()}
        printed(body, settings.get("OPT", "3"), **without_kernels(tmp_path / folder), **numba)
        (file,) = (tmp_path / folder).rglob("*scale*.code")
        found.append(file.read_bytes())
    assert found[0] == found[1]
