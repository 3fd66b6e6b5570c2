"""Machine code of kernels: in the library or on disk, or else compiled by this process.

The name of a file contains a digest of everything that its machine code depends on: processor, Numba, LLVM and the
sources of the kernel. A file begins with a digest of its name and content, which detects truncated, changed and renamed
files.
"""

import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from graphfeed.ops.cpu.compiler.folders import folders, is_trusted, warn_once
from graphfeed.ops.cpu.compiler.kernel import CALL, STARTED, Kernel, MachineCode
from graphfeed.ops.cpu.compiler.library import find_function, is_ignored, open_library
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.process import install_hint, regular_file

DIGEST_BYTES = 32
SILENT_SECONDS = 2.0
"""Time after the start of the first compilation at which a message is logged."""
OLD_SECONDS = 604800.0
"""Age at which a kernel's files from other versions of its sources are removed: another copy may be using them."""
ADVICE = "set GRAPHFEED_CACHE_DIR to a folder that only you can write to"
IMPORTED = re.compile(r"^from (graphfeed\.ops\S*) import (\w*)", re.MULTILINE)
"""An import in a module of kernels: a module and a name in it, or a package and a module."""
COMPILERS = tuple(Path(__file__).with_name(f"{name}.py") for name in ("compile", "lowering", "machine"))
"""Files that all machine code depends on, and that no module of kernels imports."""
WATCHERS: list[Callable[[KernelLoad], None]] = []
"""Functions that are called for each kernel that is compiled or loaded."""
LOADING = threading.RLock()
"""Held while a kernel is loaded or compiled. Reentrant: a finalizer may need another kernel."""
if hasattr(os, "register_at_fork"):
    # A fork waits for it, because the locks of Numba and LLVM would never be free in the child.
    os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)


def load_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> None:
    """Add the machine code of a kernel to `kernel.codes`, unless it has been loaded."""
    start, compiled = time.monotonic(), False
    with LOADING:
        if dtypes in kernel.codes:  # another thread has loaded it in the meantime
            return
        address = find_function(function_name(kernel, dtypes))
        if address is None:
            address, compiled = link_or_compile(kernel, dtypes)
        kernel.codes[dtypes] = MachineCode(address, CALL(address))
    for watcher in WATCHERS:
        watcher(KernelLoad(kernel.name, ", ".join(dtypes), time.monotonic() - start, compiled))


def link_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[int, bool]:
    """Link a kernel's machine code from disk; compile and save it first if it is missing.

    Returns:
        The address of the function, and whether it was compiled.

    Raises:
        ImportError: Numba is not installed; the message says why it is needed.
    """
    try:
        llvm().dependencies()
    except ImportError as error:
        reason = "GRAPHFEED_KERNELS=compile is set"
        if not is_ignored():
            reason = f"the library of kernels {open_library().reason or 'was built from other sources'}"
        raise ImportError(
            f"{' for '.join([kernel.name, *dtypes])} must be compiled, which needs Numba: "
            f"{install_hint('compile')} ({reason})"
        ) from error
    stem, name = stored_names(kernel, dtypes)
    readable, writable = folders()
    code = read_stored(readable, name)
    compiled = code is None
    if code is None:
        from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

        if writable is None:
            warn_once(f"graphfeed can't save its compiled kernels, so each process compiles them again; {ADVICE}")
        elif time.monotonic() - first_compiled() > SILENT_SECONDS:
            warn_once(f"graphfeed is compiling its kernels for this machine, once, and keeps them in {writable}")
        code = compile_kernel(kernel, dtypes, function_name(kernel, dtypes))
        if writable is not None:
            write(writable, name, code)
            remove_old(writable, stem, name)
    return llvm().link(function_name(kernel, dtypes), code), compiled


def function_name(kernel: Kernel, dtypes: tuple[str, ...]) -> str:
    """Return the name of a kernel's function for its current sources."""
    return f"{kernel.name}.{'-'.join(dtypes)}.{kernel_digest(file_of(kernel))}"


@cache
def first_compiled() -> float:
    return time.monotonic()


def llvm() -> Any:
    """Import the module that needs LLVM, which a process with a library of kernels never does."""
    return import_module("graphfeed.ops.cpu.compiler.machine")


def stored_names(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[str, str]:
    """Return the common prefix of a kernel's file names, and the file name for its current sources."""
    # Machines of several kinds may share a folder; each has its own files.
    machine = source_digest(repr(llvm().dependencies()).encode(), 8).hex()
    stem = f"{kernel.name}.{'-'.join(dtypes)}.{machine}"
    return stem, f"{stem}{kernel_digest(file_of(kernel))}.code"


def read_stored(folders: tuple[Path, ...], name: str) -> bytes | None:
    """Return a kernel's object file, or None. Damaged files are removed."""
    for folder in folders:
        path = folder / name
        try:
            with open(path, "rb", opener=regular_file) as file:
                if not is_trusted(os.fstat(file.fileno())):
                    continue
                content = file.read()
        except (OSError, ValueError):  # a pipe raises a ValueError
            continue
        # A full or failing disk may have left any content under this name, and those who can write to a folder around
        # this one can exchange its files.
        if source_digest(name.encode() + content[DIGEST_BYTES:], DIGEST_BYTES) == content[:DIGEST_BYTES]:
            return content[DIGEST_BYTES:]
        with suppress(OSError):
            path.unlink()
    return None


def write(folder: Path, name: str, code: bytes) -> None:
    """Write machine code to a file, atomically."""
    part = folder / f"{name}.{secrets.token_hex(4)}.part"
    try:
        with open(part, "xb", opener=partial(os.open, mode=0o644)) as file:  # even if the umask would allow more
            file.write(source_digest(name.encode() + code, DIGEST_BYTES) + code)
        part.replace(folder / name)
    except OSError as error:
        warn_once(f"compiled kernels can't be saved in {folder}: {error.strerror}; free some space, or {ADVICE}")
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_old(folder: Path, stem: str, name: str) -> None:
    """Remove a kernel's old files from other versions of its sources, and those of killed processes."""
    for path in folder.glob(f"{stem}*"):
        with suppress(OSError):  # another process may remove it first
            if path.name != name and time.time() - path.stat().st_mtime > OLD_SECONDS:
                path.unlink()


def source_digest(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()


def file_of(kernel: Kernel) -> Path:
    return Path(kernel.function.__code__.co_filename)


@cache
def kernel_digest(module: Path) -> str:
    """Return a digest of the sources that the machine code of a module's kernels depends on."""
    parts = [path.name.encode() + read_source(path) for path in sorted(sources_of(module).union(COMPILERS))]
    return source_digest(b"".join(parts), 8).hex()


@cache
def sources_of(module: Path) -> frozenset[Path]:
    """Return the files of a module of kernels, and of those in the package that it imports, directly or not."""
    found = IMPORTED.findall(read_source(module).decode())
    imported = [sys.modules.get(f"{package}.{name}") or sys.modules[package] for package, name in found]
    return frozenset({module}).union(*(sources_of(Path(own.__file__ or "")) for own in imported))


@cache
def read_source(path: Path) -> bytes:
    # This process may run another version of a file that has changed since it began to import kernels. Other processes
    # would expect machine code of the changed file under the digest of its content.
    is_changed = path.stat().st_mtime > STARTED
    return path.read_bytes() + (secrets.token_hex(8).encode() if is_changed else b"")


@contextmanager
def watch_kernels(watcher: Callable[[KernelLoad], None]) -> Iterator[None]:
    """Call a function for each kernel that this process compiles or loads in the `with` block, in any thread."""
    WATCHERS.append(watcher)
    try:
        yield
    finally:
        WATCHERS.remove(watcher)
