"""The device code: each `.cu` file in this folder and its subfolders, with its includes.

Files are compiled separately, so that the first mini-batch only waits for the kernels that it uses.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"\n', re.MULTILINE)
KERNEL = re.compile(r"__global__ void (\w+)\(([^)]*)\)")
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^    ([\w ]+ \*?\w+);", re.MULTILINE)
INTS = ("Ints", "OutInts")
"""Arrays of integers of any width, passed as two parameters: the address, and the size of a value in bytes."""


class Parameter(NamedTuple):
    """A kernel parameter: a number, an address, or an array of integers of any width."""

    kind: str
    name: str


@cache
def file_of_kernel() -> dict[str, str]:
    """Return the file of each kernel, by name."""
    files = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cu"))
    return {kernel: file for file in files for kernel, _ in KERNEL.findall((FOLDER / file).read_text())}


def parameters_of(code: str) -> dict[str, list[Parameter]]:
    """Return the parameters of each kernel in source code; structs are expanded to their fields."""
    structs = {name: FIELD.findall(fields) for name, fields in STRUCT.findall(code) if name not in INTS}

    def expand(text: str) -> list[Parameter]:
        name = re.findall(r"\w+", text)[-1]
        kind = text.strip().removesuffix(name).rstrip()
        return (
            [part for field in structs[kind] for part in expand(field)] if kind in structs else [Parameter(kind, name)]
        )

    return {
        kernel: [part for text in given.split(",") for part in expand(text)] for kernel, given in KERNEL.findall(code)
    }


@cache
def device_code(file: str) -> str:
    """Return the source of a file with its includes inlined, for compilers without access to files."""
    # CuPy's disk cache only considers the source, not the included files.
    included: set[str] = set()

    def inline(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return INCLUDE.sub(lambda found: inline(found[1]), (FOLDER / name).read_text())

    return inline(file)
