"""The files that a data set is made of, and whether they changed while they were read."""

from collections.abc import Iterable
from pathlib import Path


class InputFiles:
    """Remembers the sizes and the times of files."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[int, int]] = {}

    def remember(self, paths: Iterable[Path]) -> list[tuple[str, int, int]]:
        """Return the name, the size and the time of each file, as they are now."""
        states = []
        for path in paths:
            try:
                status = path.stat()
                now = (status.st_size, status.st_mtime_ns)
            except FileNotFoundError:
                if path not in self.known:
                    raise
                now = None
            if now is None or self.known.setdefault(path, now) != now:
                raise ValueError(f"{path} changed while it was read; run again when nothing writes it")
            states.append((str(path), *now))
        return states

    def check_unchanged(self) -> None:
        self.remember(self.known)
