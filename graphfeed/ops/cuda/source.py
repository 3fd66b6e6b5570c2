"""The device code: every `.cu` file beside this one, with what it includes."""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDE = re.compile(r'^#include "(.+)"\n', re.MULTILINE)


@cache
def device_code() -> str:
    """Return all kernels as one text without includes, for compilers that look for no files.

    CuPy's cache on disk knows a text, not the files that it includes.
    """
    included: set[str] = set()

    def inline(name: str) -> str:
        if name in included:
            return ""
        included.add(name)
        return INCLUDE.sub(lambda found: inline(found[1]), (FOLDER / name).read_text())

    return "\n".join(inline(path.name) for path in sorted(FOLDER.glob("*.cu")))
