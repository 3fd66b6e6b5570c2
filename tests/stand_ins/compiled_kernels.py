"""The device code, compiled for the CPU: a function for each kernel."""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from graphfeed.ops.cuda.source import KERNEL

COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
# Symbols that several of these libraries define, such as shared memory in a template, are kept separate. Undefined
# behaviour ends the process, and uninitialized variables have other values.
FLAGS = (
    "-std=c++20", "-O1", "-fno-gnu-unique", "-fno-strict-aliasing", "-shared", "-fPIC",
    "-ftrivial-auto-var-init=pattern", "-fsanitize=shift,signed-integer-overflow,integer-divide-by-zero",
    "-fsanitize-undefined-trap-on-error", "-ffp-contract=off",
)  # fmt: skip
WATCHED = ("-DWATCHED", "-fsanitize=thread")
"""Lets `watched_memory.h` see every load and store."""
LIBRARIES = HEADER.parent / "__pycache__"


@cache
def compiled(code: str, *flags: str) -> ctypes.CDLL:
    """Compile device code for the CPU; return it with a function for each kernel."""
    made = [f"CALLABLE({name})" for name, _ in KERNEL.findall(code)]
    return ctypes.CDLL(str(make_library("\n".join([f'#include "{HEADER}"', code, *made]), *flags)))


def make_library(text: str, *more: str, beside: Sequence[Path] = ()) -> Path:
    """Compile C++, and what is linked to it, once for all processes and until it or what it includes changes."""
    assert COMPILER is not None
    flags = [*(flag for flag in FLAGS if flag != "-shared"), *more]
    expand = [COMPILER, *flags, "-E", "-x", "c++", "-"]
    expanded = subprocess.run(expand, input=text, check=True, capture_output=True, text=True).stdout
    parts = [expanded, *flags, *(path.read_text() for path in beside)]
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
    library = LIBRARIES / f"cuda-{digest}.so"
    LIBRARIES.mkdir(exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            with TemporaryDirectory(dir=LIBRARIES) as folder:
                source, part, made = (Path(folder, f"kernels.{kind}") for kind in ("ii", "o", "so"))
                source.write_text(expanded)
                subprocess.run([COMPILER, *flags, "-c", "-o", part, source], check=True)
                # Without the sanitizer's own library: the header has what it would bring.
                subprocess.run([COMPILER, *FLAGS, "-o", made, part, *beside], check=True)
                os.replace(made, library)
    return library
