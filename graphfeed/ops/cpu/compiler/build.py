"""Compilation of all kernels ahead of time, and their link into one shared library. Imported only to build a library.

The library depends on no version of Python or torch, and calls only functions of the C library.
"""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from pathlib import Path
from queue import SimpleQueue

from graphfeed.ops.cpu.compiler.ahead import all_kernels, ask, cores, end, start_helper
from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.library import (
    PATTERN,
    function_in,
    levels,
    library_name,
    open_library,
    symbol_for,
)
from graphfeed.ops.cpu.compiler.store import function_name

Variant = tuple[Kernel, tuple[str, ...]]
"""A kernel and a choice of dtypes."""
Helpers = SimpleQueue[subprocess.Popen[str]]

FEATURES = {"x86-64-v2": "+sse4.2", "x86-64-v3": "+sse4.2"}
"""Features of a kind of processors that kernels ask for by name; it has these and others anyway."""
OLDEST_GLIBC = 28
"""Minor version of glibc 2 that a library may need: that of the wheels' tag, manylinux_2_28."""


def current_library() -> Path | None:
    """Return the library of this installation if it has all kernels of the current sources."""
    path, code, _ = open_library()
    wanted = wanted_symbols(all_kernels())
    return path if code is not None and all(function_in(code, symbol) is not None for symbol in wanted) else None


def wanted_symbols(variants: Sequence[Variant]) -> dict[str, tuple[str, Kernel, tuple[str, ...]]]:
    """Return the names of the functions of a library, each with its kind of processors, kernel and dtypes."""
    return {
        symbol_for(level, function_name(kernel, dtypes)): (level, kernel, dtypes)
        for level in levels()
        for kernel, dtypes in variants
    }


def build_library(
    folder: Path = SOURCES,
    variants: Sequence[Variant] | None = None,
    note: Callable[[int, int], None] = lambda _done, _total: None,
) -> Path:
    """Compile kernels for each kind of processors, link them, and put the library in place of an earlier one.

    Args:
        folder: Where to write the library.
        variants: Kernels, each with a choice of dtypes. None means all of the package.
        note: Called after each kernel with the number of those that are compiled, and of all.

    Raises:
        RuntimeError: A kernel can't be compiled, or the library can't be linked.
    """
    if not levels():
        raise RuntimeError(f"libraries of kernels can't be built for the architecture {platform.machine()}")
    with tempfile.TemporaryDirectory() as scratch:
        objects = list[Path]()
        wanted = wanted_symbols(all_kernels() if variants is None else variants)
        for code in compile_all(wanted):
            objects.append(Path(scratch, f"{len(objects)}.o"))
            objects[-1].write_bytes(code)
            note(len(objects), len(wanted))
        linked = Path(scratch, "kernels.so")
        link_shared(objects, linked)
        check_linked(linked, wanted)
        path = folder / library_name(linked.read_bytes())
        part = folder / path.name.replace("kernels", "part")
        shutil.copyfile(linked, part)
        part.replace(path)
    for old in folder.glob(PATTERN):
        if old != path:
            old.unlink()
    return path


def compile_all(wanted: dict[str, tuple[str, Kernel, tuple[str, ...]]]) -> Iterator[bytes]:
    """Yield the object file of each function, in order, compiled by one helper per core."""
    for level in levels():
        settings = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": FEATURES.get(level, "")}
        helpers = [start_helper(**settings) for _ in range(cores())]
        idle: Helpers = SimpleQueue()
        for helper in helpers:
            idle.put(helper)
        jobs = [(kernel, dtypes, symbol) for symbol, (own, kernel, dtypes) in wanted.items() if own == level]
        pool = ThreadPoolExecutor(len(helpers))
        try:
            for done in [pool.submit(compile_by_one_of, idle, *job) for job in jobs]:
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
            for helper in helpers:
                end(helper)


def compile_by_one_of(idle: Helpers, kernel: Kernel, dtypes: tuple[str, ...], symbol: str) -> bytes:
    helper = idle.get()
    try:
        answer = ask(helper, [kernel.__module__, kernel.__name__, symbol, *dtypes])
    finally:
        idle.put(helper)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return b64decode(answer[1])


def link_shared(objects: Sequence[Path], out: Path) -> None:
    """Link object files by the C compiler's linker, without start files, symbols of debuggers or a build id."""
    options = ["-mmacosx-version-min=11.0", "-Wl,-x"]
    if sys.platform != "darwin":
        options = ["-nostartfiles", "-s", "-Wl,--build-id=none,-z,noexecstack,-z,now,-z,relro"]
    done = subprocess.run(
        ["cc", "-shared", *options, "-o", str(out), *map(str, objects)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"kernels can't be linked: {done.stderr}")


def check_linked(path: Path, wanted: dict[str, tuple[str, Kernel, tuple[str, ...]]]) -> None:
    """Raise a RuntimeError if a library lacks a function, or needs a newer C library than its wheel promises."""
    versions = {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())}
    if max(versions, default=0) > OLDEST_GLIBC:
        raise RuntimeError(
            f"the library of kernels needs glibc 2.{max(versions)}, which is newer than 2.{OLDEST_GLIBC}"
        )
    code = CDLL(str(path))
    missing = [symbol for symbol in wanted if function_in(code, symbol) is None]
    if missing:
        raise RuntimeError(f"the library of kernels lacks {', '.join(missing)}")
