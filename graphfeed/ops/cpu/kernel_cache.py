"""Machine code on disk: where it may lie, and that nothing which happens there makes a call fail.

A file holds one kernel for one signature. Its name has a digest of all that the machine code depends on: the module of
the kernel and those that it imports, the types of the arguments, the processor, Numba and its settings. So a file is
either the right one or is never looked at. The file begins with a digest of its content, since machine code that a full
disk has cut off, or a failing one has changed, must not run.

Whoever can write such a file decides what this process executes. So a folder is used only if nobody can write to it
but its user, root, and those who can write to the package as well.
"""

import logging
import os
import pickle
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dis import get_instructions
from functools import cache
from hashlib import blake2b, sha1
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, install_listener
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from graphfeed.ops.backend import KernelLoad

if sys.platform != "win32":
    import fcntl

config: Any = numba.config
LOGGER = logging.getLogger(__name__)
"""Not `warnings`: no line of the user's is to blame, and a filter that raises would make a call fail."""
FOLDER = Path(__file__).parent
PACKAGE = Path(__file__).parents[2]
SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
"""Settings of Numba's that change the machine code."""
DIGEST_BYTES = 32
WAIT_SECONDS = 120.0
"""How long a process waits for another that compiles the same kernel, before it compiles the kernel as well."""
SILENT_SECONDS = 2.0
"""How long kernels compile before that is said."""
ABANDONED_SECONDS = 3600.0
"""After how long nobody is writing to a file any more."""
ADVICE = "set GRAPHFEED_CACHE_DIR to a folder to which you alone can write"


SAID: set[str] = set()
WATCHERS: list[Callable[[KernelLoad], None]] = []
"""Are told of each kernel that is compiled or loaded."""


@cache
def imported_by(module: Path) -> frozenset[Path]:
    """Return the files of the package that a module imports from, other than this one and packages' own files."""
    names, package = set(), ""
    # Not ast.parse: Python before 3.11.8 raises SystemError where several threads call it at once.
    for step in get_instructions(compile(module.read_bytes(), module, "exec")):
        if step.opname == "IMPORT_NAME":
            package = step.argval
            names.add(package)
        elif step.opname == "IMPORT_FROM":
            names.add(f"{package}.{step.argval}")
    inside = (name.split(".")[1:] for name in names if name.startswith(f"{PACKAGE.name}."))
    files = {PACKAGE.joinpath(*parts).with_suffix(".py") for parts in inside}
    return frozenset(path for path in files if path != Path(__file__) and path.exists())


def parts_of(module: Path) -> frozenset[Path]:
    """Return the files of a module and of all that it imports from the package, directly or not."""
    parts, waiting = {module}, [module]
    while waiting:
        found = imported_by(waiting.pop()) - parts
        parts |= found
        waiting += found
    return frozenset(parts)


@cache
def digest_of(module: Path) -> str:
    """Digest all that the kernels of a module are compiled from.

    A kernel's machine code contains the functions that it calls and the constants that it reads.
    """
    contents = (path.name.encode() + path.read_bytes() for path in sorted(parts_of(module)))
    return blake2b(b"".join(contents), digest_size=6).hexdigest()


def warn_once(subject: str, message: str) -> None:
    """Log a warning, which goes to stderr unless the program has set up logging; one per subject."""
    if subject not in SAID:
        SAID.add(subject)
        LOGGER.warning(message)


def real(folder: Path | str) -> Path:
    """Return where a folder lies that users may have linked to another disk; links in a loop are left."""
    return Path(os.path.realpath(folder))


def candidates(sources: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders for the machine code of a folder of modules, the preferred one first, and their mode.

    Links to them are followed here. A folder that is a link after that is not used: in the temporary folder, anybody
    may make one under the name of the user's folder.
    """
    own = f"{sources.name}_{sha1(str(sources).encode(), usedforsecurity=False).hexdigest()}"
    for given in (os.environ.get("GRAPHFEED_CACHE_DIR"), config.CACHE_DIR):
        if given:
            yield real(given) / own, 0o755
    yield real(sources) / "__pycache__", 0o755
    user_cache = Path(AppDirs(appname="graphfeed", appauthor=False).user_cache_dir)
    yield (real(user_cache) if user_cache.is_absolute() else user_cache) / own, 0o755
    with suppress(OSError):  # there is no temporary folder
        user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
        yield Path(tempfile.gettempdir(), f"graphfeed{user}", own), 0o700


def is_trusted(folder: Path) -> bool:
    """Tell whether only the user, root, and those who can write to the package can write to a folder."""
    if not hasattr(os, "geteuid"):
        return True
    package, found = FOLDER.stat(), folder.lstat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~package.st_mode
    if found.st_gid != package.st_gid:
        writable |= found.st_mode & stat.S_IWGRP
    return not writable and found.st_uid in (os.geteuid(), 0, package.st_uid)


def why_unusable(folder: Path, mode: int) -> str:
    """Make a folder for machine code, where it is missing; return why it can't be read, or an empty string."""
    if not folder.is_absolute():  # nobody knows the user's home
        return "it is not absolute"
    try:
        folder.parent.mkdir(mode, parents=True, exist_ok=True)
        folder.mkdir(mode, exist_ok=True)
        if not all(stat.S_ISDIR(part.lstat().st_mode) for part in (folder.parent, folder)):
            return "it is no folder"
        if not (is_trusted(folder.parent) and is_trusted(folder)):
            return "others can write to it"
        os.listdir(folder)
    except (FileExistsError, NotADirectoryError):
        return "it is no folder"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_writable(folder: Path) -> bool:
    """Tell whether files can be made in a folder."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@cache
def places_for(sources: Path) -> tuple[tuple[Path, ...], Path | None]:
    """Return the folders to read machine code from, and the one to write it to: the first that can be written to."""
    readable, given = [], os.environ.get("GRAPHFEED_CACHE_DIR")
    for folder, mode in candidates(sources):
        reason = why_unusable(folder, mode)
        if not reason:
            readable.append(folder)
            if is_writable(folder):
                return tuple(readable), folder
            reason = "it can't be written to"
        if given and folder.parent == real(given):
            warn_once("given", f"compiled kernels are not kept in GRAPHFEED_CACHE_DIR, {given}: {reason}")
    return tuple(readable), None


class CompileClock(Listener):
    """Says once that kernels are being compiled, when this has taken more than two seconds in all."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.begun: float | None = None
        self.folder: Path | None = None

    @contextmanager
    def timing(self, folder: Path | None) -> Iterator[None]:
        """Measure from the first pass of the compiler, if there is one, to the end."""
        if self.begun is not None:  # a kernel that another one calls
            yield
            return
        self.folder = folder
        try:
            with install_listener("numba:run_pass", self):
                yield
        finally:
            self.end()

    def end(self) -> None:
        """Add up what was measured."""
        self.spent += 0.0 if self.begun is None else time.monotonic() - self.begun
        self.begun = None

    def on_start(self, event: Event) -> None:  # noqa: ARG002
        """Look at the clock: a thread that does nothing else would be in the way of programs that fork."""
        self.begun = self.begun or time.monotonic()
        self.look(time.monotonic() - self.begun)

    def on_end(self, event: Event) -> None:
        """Do the same."""
        self.on_start(event)

    def look(self, now: float) -> None:
        """Say it if it is time."""
        if self.spent + now > SILENT_SECONDS:
            where = f"once, and keeps them in {self.folder}" if self.folder else "and can't save them"
            warn_once("compiling", f"graphfeed is compiling its kernels for this machine, {where}")


COMPILE_CLOCK = CompileClock()


class KernelCache(NullCache):
    """The machine code of one kernel. What can't be read is thrown away, and what can't be written is left out."""

    def __init__(self, function: Callable[..., Any]) -> None:
        module = Path(function.__code__.co_filename)
        self.sources = module.parent
        self.stem = f"{module.stem}.{function.__qualname__}"
        # Now, while the module is imported: its file may have changed by the time that the kernel is compiled.
        self.digest = digest_of(module)

    @property
    def cache_path(self) -> str | None:
        """The folder to which files are written."""
        folder = places_for(self.sources)[1]
        return None if folder is None else str(folder)

    def name_of(self, signature: Any, target: Any) -> str:
        """Return the name of the file for a signature and a processor."""
        versions = numba.__version__, sys.implementation.cache_tag, getattr(sys, "abiflags", "")
        settings = [str(getattr(config, name, None)) for name in SETTINGS]
        all_of_it = repr((signature, target, versions, settings))
        return f"{self.stem}.{self.digest}.{blake2b(all_of_it.encode(), digest_size=8).hexdigest()}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, or None."""
        target_context.refresh()
        name = self.name_of(sig, target_context.codegen().magic_tuple())
        for folder in places_for(self.sources)[0]:
            path = folder / name
            try:
                content = path.read_bytes()
            except OSError:
                continue
            data = content[DIGEST_BYTES:]
            if blake2b(data, digest_size=DIGEST_BYTES).digest() == content[:DIGEST_BYTES]:
                return CompileResult._rebuild(target_context, *pickle.loads(data))
            with suppress(OSError):
                path.unlink()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write machine code; a file is there as a whole, or not at all."""
        folder = places_for(self.sources)[1]
        if folder is None:
            warn_once(
                "none", f"graphfeed can't save its compiled kernels, so each process compiles them anew; {ADVICE}"
            )
            return
        if data.library.has_dynamic_globals:
            return
        content = dumps(data._reduce())
        path = folder / self.name_of(sig, data.codegen.magic_tuple())
        part = path.with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            part.write_bytes(blake2b(content, digest_size=DIGEST_BYTES).digest() + content)
            part.replace(path)
        except OSError as error:
            warn_once(
                "save", f"compiled kernels can't be saved in {folder}: {error.strerror}; make room there, or {ADVICE}"
            )
            with suppress(OSError):
                part.unlink(missing_ok=True)
        self.remove_old(folder)

    def remove_old(self, folder: Path) -> None:
        """Remove the files of other versions of the kernel, and what killed processes were writing."""
        for path in folder.glob(f"{self.stem}.*"):
            with suppress(OSError):  # another process removes it
                if path.suffix == ".part":
                    is_old = time.time() - path.stat().st_mtime > ABANDONED_SECONDS
                else:
                    is_old = path.suffix in {".nbc", ".lock"} and f".{self.digest}." not in path.name
                if is_old:
                    path.unlink()


def keep(compiled: Any) -> Any:
    """Keep the machine code of a kernel on disk, and let processes that start together compile it once, not each."""
    compiled._cache = stored = KernelCache(compiled.py_func)
    compile_or_load = compiled.compile

    def compile_in_turn(signature: Any) -> Any:
        # In this order, since the thread that holds the second lock may need another thread to compile.
        with global_compiler_lock:
            folder = places_for(stored.sources)[1]
            name = stored.name_of(signature, compiled.targetctx.codegen().magic_tuple())
            turn = nullcontext() if folder is None else only_one((folder / name).with_suffix(".lock"))
            with COMPILE_CLOCK.timing(folder), turn, reporting(compiled, signature):
                entry_point = compile_or_load(signature)
                set_environments(compiled)
                return entry_point

    compiled.compile = compile_in_turn
    return compiled


def set_environments(compiled: Any) -> None:
    """Set what the parts of a kernel need to print or raise, as Numba does where it loads a kernel from disk."""
    for result in compiled.overloads.values():
        for environment in result._find_referenced_environments():
            result.codegen.set_env(environment.env_name, environment)


@contextmanager
def reporting(compiled: Any, signature: Any) -> Iterator[None]:
    """Tell the watchers how long a kernel took, and whether it was compiled; one that was there already is none."""
    stats, start = compiled.stats, time.monotonic()
    hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
    yield
    was_compiled = sum(stats.cache_misses.values()) > misses
    if was_compiled or sum(stats.cache_hits.values()) > hits:
        function = compiled.py_func
        name = f"{function.__module__.removeprefix(f'{__package__}.')}.{function.__qualname__}"
        load = KernelLoad(name, str(signature), time.monotonic() - start, was_compiled)
        for watcher in WATCHERS:
            watcher(load)


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
                COMPILE_CLOCK.look(time.monotonic() - start)
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
