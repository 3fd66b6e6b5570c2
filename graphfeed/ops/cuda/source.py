"""The device code: every `.cu` file of this folder and those below it, with what they include."""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"\n', re.MULTILINE)


@cache
def device_code() -> str:
    """Return all kernels as one text without includes, for compilers that look for no files."""
    # CuPy's cache on disk knows a text, not the files that it includes.
    included: set[str] = set()

    def inline(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return INCLUDE.sub(lambda found: inline(found[1]), (FOLDER / name).read_text())

    files = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cu"))
    return "\n".join(inline(name) for name in files)
