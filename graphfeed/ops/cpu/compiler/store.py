"""Cache of compiled kernels on disk. A kernel whose file is missing or damaged is compiled again.

The name of a file contains a digest of everything that its machine code depends on: processor, Numba, LLVM and the
sources of all kernels. A file begins with a digest of its name and content, which detects truncated, changed and
renamed files.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from graphfeed.ops.cpu.compiler.folders import NOTICES, SOURCES, folders, is_trusted
from graphfeed.ops.cpu.compiler.kernel import CALL, STARTED, Kernel, MachineCode
from graphfeed.ops.cpu.compiler.library import find_function, is_ignored, open_library
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.process import ForkLock, install_hint, regular_file

if sys.platform != "win32":
    import fcntl

CONSTANTS = SOURCES.parent / "random.py"
"""File of constants that kernels use."""
DIGEST_BYTES = 32
WAIT_SECONDS = 120.0
"""Time for which a process waits for another that compiles the same kernel, before it compiles the kernel itself."""
ABANDONED_SECONDS = 3600.0
"""Age at which a partly written file counts as abandoned."""
ADVICE = "set GRAPHFEED_CACHE_DIR to a folder that only you can write to"
WATCHERS: list[Callable[[KernelLoad], None]] = []
"""Functions that are called for each kernel that is compiled or loaded."""
COMPILING = ForkLock()
"""Held while a kernel is linked, or compiled in this process. Reentrant: a finalizer may need another kernel."""


def load_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> None:
    """Link a kernel's machine code into this process, unless it is linked already, and add it to `kernel.codes`."""
    found, load = find_or_compile(kernel, dtypes)
    with COMPILING.lock:
        if dtypes not in kernel.codes:
            address = found if isinstance(found, int) else llvm().link(*found)
            kernel.codes[dtypes] = MachineCode(address, CALL(address))
        elif not load.compiled:  # another thread has linked it in the meantime
            return
    for watcher in WATCHERS:
        watcher(load)


def find_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[int | tuple[str, bytes], KernelLoad]:
    """Return a kernel's machine code, compiled if it is neither in the library nor on disk, and a `KernelLoad`.

    The code is an address in the library, or else the name of a function and its object file.
    """
    start, compiled = time.monotonic(), False
    found: int | tuple[str, bytes] | None = find_function(function_name(kernel, dtypes))
    if found is None:
        check_compiler(kernel, dtypes)
        stem, name = stored_names(kernel, dtypes)
        readable, writable = folders()
        found = read_stored(readable, name)
        compiled = found is None
    if found is None:
        turn = nullcontext() if writable is None else file_lock(writable / f"{name}.lock")
        with NOTICES.timing(writable), turn:
            found = read_stored(readable, name)  # another process may have compiled it in the meantime
            compiled = found is None
            if found is None:
                found = compile_and_keep(kernel, dtypes, writable, stem, name)
    return found, KernelLoad(kernel.name, ", ".join(dtypes), time.monotonic() - start, compiled)


def function_name(kernel: Kernel, dtypes: tuple[str, ...]) -> str:
    """Return the name that a kernel has in a library of the current sources."""
    return f"{kernel.name}.{'-'.join(dtypes)}.{kernel_digest(Path(kernel.function.__code__.co_filename))}"


def check_compiler(kernel: Kernel, dtypes: tuple[str, ...]) -> None:
    """Raise an ImportError that says why a kernel is needed that has to be compiled, if Numba is not installed."""
    if find_spec("llvmlite") and find_spec("numba"):
        return
    if is_ignored():
        reason = "GRAPHFEED_KERNELS=compile is set"
    else:
        reason = f"the library of kernels {open_library().reason or 'was built from other sources'}"
    raise ImportError(
        f"{' for '.join([kernel.name, *dtypes])} must be compiled, which needs Numba: "
        f"{install_hint('compile')} ({reason})"
    )


def llvm() -> Any:
    """Import the module that needs LLVM, which a process with a library of kernels never does."""
    return import_module("graphfeed.ops.cpu.compiler.machine")


def stored_names(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[str, str]:
    """Return the common prefix of a kernel's file names, and the file name for its current sources."""
    # Machines of several kinds may share a folder; each has its own files.
    machine = source_digest(repr(llvm().dependencies()).encode(), 8).hex()
    stem = f"{kernel.name}.{'-'.join(dtypes)}.{machine}"
    return stem, f"{stem}{kernel_digest(Path(kernel.function.__code__.co_filename))}"


def is_kept(kernel: Kernel, dtypes: tuple[str, ...]) -> bool:
    """Return whether a kernel is in the library or on disk."""
    if find_function(function_name(kernel, dtypes)) is not None:
        return True
    check_compiler(kernel, dtypes)
    name = f"{stored_names(kernel, dtypes)[1]}.code"
    return any((folder / name).exists() for folder in folders()[0])


def compile_and_keep(
    kernel: Kernel, dtypes: tuple[str, ...], folder: Path | None, stem: str, name: str
) -> tuple[str, bytes]:
    """Compile a kernel and save its machine code; return the name of its function and the object file."""
    from graphfeed.ops.cpu.compiler.ahead import compile_in_helper  # noqa: PLC0415 - it imports this module

    found, module = None, Path(kernel.function.__code__.co_filename)
    # A helper imports the current sources of the package, so they must be those that this process runs.
    if SOURCES in module.parents and not is_edited(module):
        found = compile_in_helper(kernel, dtypes)
    if found is None or is_edited(module):
        from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

        with COMPILING.lock:
            found = compile_kernel(kernel, dtypes)
    if folder is None:
        message = f"graphfeed can't save its compiled kernels, so each process compiles them again; {ADVICE}"
        NOTICES.warn_once("none", message)
    else:
        write(folder, name, found)
        remove_old(folder, stem, name)
    return found


def read_stored(folders: tuple[Path, ...], name: str) -> tuple[str, bytes] | None:
    """Return the name of a kernel's function and its object file, or None. Damaged files are removed."""
    for folder in folders:
        path = folder / f"{name}.code"
        try:
            with open(path, "rb", opener=regular_file) as file:
                if not is_trusted(os.fstat(file.fileno())):
                    continue
                content = file.read()
        except (OSError, ValueError):  # a pipe raises a ValueError
            continue
        symbol, _, code = content[DIGEST_BYTES:].partition(b"\0")
        # A full or failing disk may have left any content under this name, and those who can write to a folder around
        # this one can exchange its files.
        if source_digest(name.encode() + content[DIGEST_BYTES:], DIGEST_BYTES) == content[:DIGEST_BYTES]:
            return symbol.decode(), code
        with suppress(OSError):
            path.unlink()
    return None


def write(folder: Path, name: str, found: tuple[str, bytes]) -> None:
    """Write machine code to a file, atomically."""
    symbol, code = found
    content = symbol.encode() + b"\0" + code
    part = folder / f"{name}.{secrets.token_hex(4)}.part"
    try:
        with open(part, "xb", opener=partial(os.open, mode=0o644)) as file:  # even if the umask would allow more
            file.write(source_digest(name.encode() + content, DIGEST_BYTES) + content)
        part.replace(folder / f"{name}.code")
    except OSError as error:
        NOTICES.warn_once(
            "save", f"compiled kernels can't be saved in {folder}: {error.strerror}; free some space, or {ADVICE}"
        )
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_old(folder: Path, stem: str, name: str) -> None:
    """Remove a kernel's files from other versions of its sources, and unfinished files of killed processes."""
    for path in folder.glob(f"{stem}*"):
        with suppress(OSError):  # another process may remove it first
            if path.suffix == ".part":
                is_old = time.time() - path.stat().st_mtime > ABANDONED_SECONDS
            else:
                is_old = path.suffix in {".code", ".lock"} and path.stem != name
            if is_old:
                path.unlink()


def source_digest(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()


@cache
def kernel_digest(module: Path) -> str:
    """Return a digest of the sources that the machine code of a module's kernels depends on."""
    parts = [path.name.encode() + path.read_bytes() for path in sources_of(module)]
    # Other processes would expect machine code of the edited sources under the plain name.
    if is_edited(module):
        parts.append(secrets.token_bytes(8))
    return source_digest(b"".join(parts), 8).hex()


def sources_of(module: Path) -> list[Path]:
    """List the files that the machine code of a module's kernels depends on."""
    files = [*sorted(SOURCES.rglob("*.py")), CONSTANTS]
    return files if SOURCES in module.parents else [*files, module]


def is_edited(module: Path) -> bool:
    """Return whether a source has changed since this process began to import kernels: it may run another version."""
    return any(path.stat().st_mtime > STARTED for path in sources_of(module))


@contextmanager
def watch_kernels(watcher: Callable[[KernelLoad], None]) -> Iterator[None]:
    """Call a function for each kernel that this process compiles or loads in the `with` block, in any thread."""
    WATCHERS.append(watcher)
    try:
        yield
    finally:
        WATCHERS.remove(watcher)


@contextmanager
def file_lock(lock: Path) -> Iterator[None]:
    """Hold a file lock, if the file system supports locks; it ends with its process. Waits up to `WAIT_SECONDS`."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:  # the folder is not writable, so no other process will write there
        yield
        return
    try:
        start = time.monotonic()
        with suppress(OSError):  # the file system doesn't support locks
            while not locked(descriptor) and time.monotonic() - start < WAIT_SECONDS:
                time.sleep(0.01)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor, too
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Try to lock an open file; return False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
