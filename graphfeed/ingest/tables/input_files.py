"""The files that a data set is made of, and whether they changed while they were read."""

from collections.abc import Iterable
from pathlib import Path


class InputFiles:
    """Remembers the sizes and the times of files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.csv"
        ...     _ = path.write_text("a")
        ...     files = InputFiles()
        ...     _ = files.remember([path])
        ...     _ = path.write_text("another")
        ...     try:
        ...         files.check_unchanged()
        ...     except ValueError as error:
        ...         print(str(error).partition("a.csv ")[2])
        changed while it was read; run again when nothing writes it
    """

    def __init__(self) -> None:
        self.known: dict[Path, tuple[int, int]] = {}

    def remember(self, paths: Iterable[Path]) -> list[tuple[str, int, int]]:
        """Return the name, the size and the time of each file, as they are now.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: A file that was remembered before has changed since.
        """
        found = []
        for path in paths:
            status = path.stat()
            own = (status.st_size, status.st_mtime_ns)
            if self.known.setdefault(path, own) != own:
                raise changed(path)
            found.append((str(path), *own))
        return found

    def check_unchanged(self) -> None:
        """Raise a ValueError if a file is another one than it was."""
        for path, (size, time) in self.known.items():
            try:
                status = path.stat()
            except FileNotFoundError as error:
                raise changed(path) from error
            if (status.st_size, status.st_mtime_ns) != (size, time):
                raise changed(path)


def changed(path: Path) -> ValueError:
    """Return the error about a file that has changed."""
    return ValueError(f"{path} changed while it was read; run again when nothing writes it")
