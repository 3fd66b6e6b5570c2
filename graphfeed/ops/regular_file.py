"""The one way in which files that users name are opened for reading: never what could keep a reader waiting."""

import os
import stat


def regular_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for `open(path, "rb", opener=regular_file)`, unless it is a pipe or a device.

    A reader of those may wait for ever, and never comes to their end. Folders are left to `open`, which refuses them.

    Raises:
        OSError: It can't be opened.
        ValueError: It is no regular file.

    Example:
        >>> open("/dev/null", "rb", opener=regular_file)
        Traceback (most recent call last):
            ...
        ValueError: /dev/null is no regular file, but a pipe or a device; give the path of a file
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise ValueError(f"{path} is no regular file, but a pipe or a device; give the path of a file")
