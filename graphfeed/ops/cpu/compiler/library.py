"""Library of kernels that were compiled ahead of time by `python -m graphfeed.build_kernels`; wheels may have one.

The name of the file contains a digest of its content, and the name of each function a digest of its sources. So neither
a damaged library nor code of other sources is run. This module only reads the library.
"""

import os
import platform
import sys
from ctypes import CDLL, addressof, c_char
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from graphfeed.ops.cpu.compiler.folders import SOURCES, is_trusted, warn_once
from graphfeed.ops.process import regular_file

X86 = "x86-64-v3", "x86-64-v2"
ARM = ("apple-m1" if sys.platform == "darwin" else "generic",)
LEVELS = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}
"""Kinds of processors for which a library has kernels, by architecture; preferred ones first, named as by LLVM."""
FLAGS = {"x86-64-v2": {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"}}
"""Features that a kind of x86 processors has, as Linux names them."""
FLAGS["x86-64-v3"] = FLAGS["x86-64-v2"] | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
PROCESSORS = Path("/proc/cpuinfo")
PATTERN = "kernels.so.*"
"""Names of libraries. Python would import a file that ends with ".so" as a module."""


class Library(NamedTuple):
    """The library of an installation."""

    path: Path | None
    code: CDLL | None
    """None if there is no library, or if it is not used."""
    reason: str
    """Why it is not used, or an empty string."""


def levels() -> tuple[str, ...]:
    """Return the kinds of processors that a library for this architecture is compiled for."""
    return LEVELS.get(platform.machine().lower(), ())


@cache
def level(path: Path = PROCESSORS) -> str | None:
    """Return the best kind of processors that includes this one, or None."""
    flags: set[str] | None = None
    try:
        with path.open("rb", buffering=0) as file:
            lines = file.read(1 << 14).decode(errors="replace").splitlines()
        flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), None)
    except OSError:  # not Linux
        pass
    if flags is None:
        return levels()[-1] if levels() else None
    return next((name for name in levels() if FLAGS.get(name, set()) <= flags), None)


@cache
def open_library(folder: Path = SOURCES) -> Library:
    """Open the library in a folder. One that is damaged, of another platform or writable by others is rejected."""
    paths = sorted(folder.glob(PATTERN))
    if not paths:
        return Library(None, None, "does not come with this installation, so kernels are compiled")
    try:
        if len(paths) > 1:
            # Installing again doesn't remove a library that was built here.
            raise ValueError(f"there is another one, {paths[1].name}; remove both")
        with open(paths[0], "rb", opener=regular_file) as file:
            if not is_trusted(os.fstat(file.fileno())):
                raise ValueError("other users can write to it")
            if paths[0].name != library_name(file.read()):
                raise ValueError("its content has changed")
        if level() is None:
            return Library(paths[0], None, "is for newer processors than this one")
        return Library(paths[0], CDLL(str(paths[0])), "")
    except (OSError, ValueError) as error:
        reason = f"{paths[0]} is not used, because {error}; install graphfeed again"
        warn_once(f"graphfeed's library of kernels {reason}")
        return Library(paths[0], None, reason)


def library_name(content: bytes) -> str:
    return PATTERN.replace("*", blake2b(content, digest_size=16).hexdigest())


def is_ignored() -> bool:
    """Return whether the user wants all kernels to be compiled."""
    given = os.environ.get("GRAPHFEED_KERNELS", "")
    if given not in ("", "compile"):
        raise ValueError(f'GRAPHFEED_KERNELS must be "compile" or unset, but is {given!r}')
    return given == "compile"


def find_function(name: str) -> int | None:
    """Return the address of a kernel's function for this processor, or None if the library doesn't have it."""
    code = None if is_ignored() else open_library().code
    return None if code is None else function_in(code, symbol_for(str(level()), name))


def function_in(code: CDLL, symbol: str) -> int | None:
    try:
        return addressof(c_char.in_dll(code, symbol))
    except ValueError:
        return None


def symbol_for(level_name: str, name: str) -> str:
    return f"{level_name}/{name}"
