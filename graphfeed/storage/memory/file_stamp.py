"""How a file is known to be as graphfeed wrote it, without reading it.

What was checked when it was written, such as the arrays of a graph, need not be checked again at each opening: that
would read all of it. So its writer notes a time, in the file or in the metadata beside it, and gives the file that time
of modification. Whatever writes to the file changes that; `mv`, `cp -p`, rsync and tar keep it, and a plain `cp` does
not. A file that is cut off has another size, which its header tells.
"""

import os
import time
from pathlib import Path

NS = 10**9


def new_stamp() -> int:
    """Return the time for files that are being written, in seconds; even, because some file systems keep no others."""
    return int(time.time()) & ~1


def stamp_file(path: Path, stamp: int) -> None:
    """Note that a file is complete, and what is in it was checked."""
    os.utime(path, ns=(stamp * NS, stamp * NS))


def has_stamp(file: Path | int, stamp: object) -> bool:
    """Tell whether a file, by its path or an open descriptor, is as it was when it got a stamp.

    Args:
        file: The file.
        stamp: What was noted, perhaps by an earlier release, which noted nothing.
    """
    return type(stamp) is int and os.stat(file).st_mtime_ns == stamp * NS
