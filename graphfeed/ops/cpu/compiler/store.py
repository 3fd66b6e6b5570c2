"""A cache of compiled kernels on disk. What fails there is compiled anew, and no other file is run.

A file's name has a digest of all that its machine code depends on (the processor, Numba, LLVM, the sources of all
kernels), and it begins with a digest of its content, in case a disk has cut it off or changed it.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from hashlib import blake2b
from importlib.metadata import distributions
from pathlib import Path

import llvmlite

from graphfeed.ops.cpu.compiler.folders import NOTICES, SOURCES, folders, is_trusted
from graphfeed.ops.cpu.compiler.kernel import CALL, STARTED, Kernel, MachineCode
from graphfeed.ops.cpu.compiler.machine import link, processor
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.process import ForkLock, regular_file

if sys.platform != "win32":
    import fcntl

CONSTANTS = SOURCES.parent / "random.py"
"""Kernels take constants from there."""
DIGEST_BYTES = 32
WAIT_SECONDS = 120.0
"""How long a process waits for another that compiles the same kernel, before it compiles the kernel as well."""
ABANDONED_SECONDS = 3600.0
"""After how long nobody is writing to a file any more."""
ADVICE = "set GRAPHFEED_CACHE_DIR to a folder to which you alone can write"
WATCHERS: list[Callable[[KernelLoad], None]] = []
"""Are told of each kernel that is compiled or loaded."""
COMPILING = ForkLock()
"""Held while a kernel is linked, or compiled in this process. Reentrant: a finalizer may need another kernel."""


def load_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> None:
    """Link a kernel's machine code into this process, once, and note it in the kernel's `codes`."""
    found, load = find_or_compile(kernel, dtypes)
    with COMPILING.lock:
        if dtypes not in kernel.codes:
            address = link(*found)
            kernel.codes[dtypes] = MachineCode(address, CALL(address))
        elif not load.compiled:  # another thread has linked it meanwhile
            return
    for watcher in WATCHERS:
        watcher(load)


def find_or_compile(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[tuple[str, bytes], KernelLoad]:
    """Return the name of a kernel's function and its object file, from disk or compiled now, and a record of that."""
    start, (stem, name) = time.monotonic(), names_of(kernel, dtypes)
    readable, writable = folders()
    found = read(readable, name)
    compiled = found is None
    if found is None:
        turn = nullcontext() if writable is None else only_one(writable / f"{name}.lock")
        with NOTICES.timing(writable), turn:
            found = read(readable, name)  # another process may have compiled it meanwhile
            compiled = found is None
            if found is None:
                found = compile_and_keep(kernel, dtypes, writable, stem, name)
    return found, KernelLoad(kernel.name, ", ".join(dtypes), time.monotonic() - start, compiled)


def names_of(kernel: Kernel, dtypes: tuple[str, ...]) -> tuple[str, str]:
    """Return what the names of a kernel's files begin with, and the name of those that its sources give it now."""
    # Machines of several kinds may share a folder, and each keeps its own.
    machine = digest(repr((numba_version(), llvmlite.__version__, *processor())).encode(), 8).hex()
    stem = f"{kernel.name}.{'-'.join(dtypes)}.{machine}"
    return stem, f"{stem}{digest_of(Path(kernel.function.__code__.co_filename))}"


@cache
def numba_version() -> str:
    """Return the release of Numba that is installed, without its import; an empty string where nobody knows."""
    return next((found.version for found in distributions(name="numba")), "")


def is_kept(kernel: Kernel, dtypes: tuple[str, ...]) -> bool:
    return any((folder / f"{names_of(kernel, dtypes)[1]}.code").exists() for folder in folders()[0])


def compile_and_keep(
    kernel: Kernel, dtypes: tuple[str, ...], folder: Path | None, stem: str, name: str
) -> tuple[str, bytes]:
    """Compile a kernel and write its machine code; return the name of its function and the object file."""
    from graphfeed.ops.cpu.compiler.ahead import compile_in_helper  # noqa: PLC0415 - it imports this module

    found, module = None, Path(kernel.function.__code__.co_filename)
    # A helper imports the package's sources as they are now, so they must be those that this process runs.
    if SOURCES in module.parents and not is_edited(module):
        found = compile_in_helper(kernel, dtypes)
    if found is None or is_edited(module):
        from graphfeed.ops.cpu.compiler.compile import compile_kernel  # noqa: PLC0415 - it imports Numba

        with COMPILING.lock:
            found = compile_kernel(kernel, dtypes)
    if folder is None:
        message = f"graphfeed can't save its compiled kernels, so each process compiles them anew; {ADVICE}"
        NOTICES.warn_once("none", message)
    else:
        write(folder, name, found)
        remove_old(folder, stem, name)
    return found


def read(folders: tuple[Path, ...], name: str) -> tuple[str, bytes] | None:
    """Return the name of a kernel's function and its object file, or None; what is damaged is thrown away."""
    for folder in folders:
        path = folder / f"{name}.code"
        try:
            with open(path, "rb", opener=regular_file) as file:
                if not is_trusted(os.fstat(file.fileno())):
                    continue
                content = file.read()
        except (OSError, ValueError):  # a ValueError of a pipe
            continue
        symbol, _, code = content[DIGEST_BYTES:].partition(b"\0")
        # A disk that was full or failed may have left anything under the right name.
        if digest(content[DIGEST_BYTES:], DIGEST_BYTES) == content[:DIGEST_BYTES]:
            return symbol.decode(), code
        with suppress(OSError):
            path.unlink()
    return None


def write(folder: Path, name: str, found: tuple[str, bytes]) -> None:
    """Write machine code; the file is there as a whole, or not at all."""
    symbol, code = found
    content = symbol.encode() + b"\0" + code
    part = folder / f"{name}.{secrets.token_hex(4)}.part"
    try:
        with open(part, "xb", opener=partial(os.open, mode=0o644)) as file:  # whatever the umask allows others
            file.write(digest(content, DIGEST_BYTES) + content)
        part.replace(folder / f"{name}.code")
    except OSError as error:
        NOTICES.warn_once(
            "save", f"compiled kernels can't be saved in {folder}: {error.strerror}; make room there, or {ADVICE}"
        )
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_old(folder: Path, stem: str, name: str) -> None:
    """Remove the files that other sources gave a kernel, and what killed processes were writing."""
    for path in folder.glob(f"{stem}*"):
        with suppress(OSError):  # another process removes it
            if path.suffix == ".part":
                is_old = time.time() - path.stat().st_mtime > ABANDONED_SECONDS
            else:
                is_old = path.suffix in {".code", ".lock"} and path.stem != name
            if is_old:
                path.unlink()


def digest(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()


@cache
def digest_of(module: Path) -> str:
    """Digest the sources that the machine code of a module's kernels depends on."""
    parts = [path.name.encode() + path.read_bytes() for path in sources_of(module)]
    # Machine code of the edited sources would not be what other processes expect under this name.
    if is_edited(module):
        parts.append(secrets.token_bytes(8))
    return digest(b"".join(parts), 8).hex()


def sources_of(module: Path) -> list[Path]:
    """List the files that the machine code of a module's kernels depends on."""
    files = [*sorted(SOURCES.rglob("*.py")), CONSTANTS]
    return files if SOURCES in module.parents else [*files, module]


def is_edited(module: Path) -> bool:
    """Return whether a file has changed since this process began to import kernels, and so may not be what it runs."""
    return any(path.stat().st_mtime > STARTED for path in sources_of(module))


@contextmanager
def watch_kernels(watcher: Callable[[KernelLoad], None]) -> Iterator[None]:
    """Tell a function of each kernel that this process compiles or loads meanwhile, in whichever thread."""
    WATCHERS.append(watcher)
    try:
        yield
    finally:
        WATCHERS.remove(watcher)


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Let one process in at a time, if the file system has locks; a lock ends with the process that holds it."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # nothing can be written there, so nobody else will
        yield
        return
    try:
        start = time.monotonic()
        with suppress(OSError):  # the file system has no locks
            while not locked(descriptor) and time.monotonic() - start < WAIT_SECONDS:
                time.sleep(0.01)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor, too
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Lock an open file, unless another process has locked it; return whether that worked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
