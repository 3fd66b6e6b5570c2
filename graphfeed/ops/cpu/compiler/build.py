"""Compilation of all kernels ahead of time, and their link into one shared library.

The library depends on no version of Python or torch, and calls only functions of the C library.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from ctypes import CDLL
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages

from graphfeed.ops.cpu.compiler.folders import SOURCES
from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.library import PATTERN, function_in, levels, library_name, open_library, symbol_for
from graphfeed.ops.cpu.compiler.store import function_name

Variant = tuple[Kernel, tuple[str, ...]]
"""A kernel and a choice of dtypes."""
PACKAGE = "graphfeed.ops.cpu"
FEATURES = {"x86-64-v2": "+sse4.2", "x86-64-v3": "+sse4.2"}
"""Features of a kind of processors that kernels ask for by name; it has these and others anyway."""
OLDEST_GLIBC = 28
"""Minor version of glibc 2 that a library may need: that of the wheels' tag, manylinux_2_28."""


def all_kernels() -> list[Variant]:
    """Return all kernels of the package, each with all its choices of dtypes."""
    found = list[Variant]()
    for module in sorted(part.name for part in walk_packages([str(SOURCES)], f"{PACKAGE}.") if not part.ispkg):
        if module.startswith(f"{__package__}.") and not module.endswith(".program"):
            continue
        for kernel in vars(import_module(module)).values():
            if isinstance(kernel, Kernel) and kernel.__module__ == module:
                found += [(kernel, dtypes) for dtypes in kernel.signature.variants()]
    return found


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    """Yield the object file of each function, in order, compiled by one process per core."""
    for level in levels():
        jobs = [
            (kernel.__module__, kernel.__name__, dtypes, symbol)
            for symbol, (own, kernel, dtypes) in wanted.items()
            if own == level
        ]
        # New processes, because Numba and LLVM are configured for one processor when they are imported.
        spawn = get_context("spawn")
        with ProcessPoolExecutor(min(cores(), len(jobs)), spawn, initializer=set_target, initargs=(level,)) as pool:
            try:
                yield from pool.map(compile_one, *zip(*jobs, strict=True))
            finally:
                pool.shutdown(cancel_futures=True)


def set_target(level: str) -> None:
    """Select the processor for which Numba and LLVM compile. This process must not have imported them yet."""
    os.environ.update(NUMBA_CPU_NAME=level, NUMBA_CPU_FEATURES=FEATURES.get(level, ""), NUMBA_DISABLE_JIT="0")


def compile_one(module: str, name: str, dtypes: tuple[str, ...], symbol: str) -> bytes:
    from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

    try:
        return compile_kernel(getattr(import_module(module), name), dtypes, symbol)
    except Exception as error:  # many errors of Numba can't be sent to another process
        raise RuntimeError(f"{module}.{name} for {dtypes}: {type(error).__name__}: {error}") from None


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
