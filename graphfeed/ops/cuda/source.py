"""The device code: each `.cu` file of this folder and those below it, with what it includes.

Each file is compiled by itself, so that a first mini-batch waits for the kernels that it uses.
"""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"\n', re.MULTILINE)
KERNEL = re.compile(r"__global__ void (\w+)\(")


@cache
def file_of_kernel() -> dict[str, str]:
    """Return the file of each kernel."""
    files = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cu"))
    return {kernel: file for file in files for kernel in KERNEL.findall((FOLDER / file).read_text())}


@cache
def device_code(file: str) -> str:
    """Return a file as one text without includes, for compilers that look for no files."""
    # CuPy's cache on disk knows a text, not the files that it includes.
    included: set[str] = set()

    def inline(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return INCLUDE.sub(lambda found: inline(found[1]), (FOLDER / name).read_text())

    return inline(file)
