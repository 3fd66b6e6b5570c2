"""Log messages about compiling, each at most once per process."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOGGER = logging.getLogger(__name__)
"""Not `warnings`: no line of the user's is to blame, and a filter that raises would make a call fail."""
SILENT_SECONDS = 2.0
"""How long kernels compile, in all, before that is said."""
SAID: set[str] = set()
"""Of what this process has warned."""
RUN_SECONDS = 600.0
"""For how long other processes need not say again that kernels compile: workers and ranks do so at the same time."""


def warn_once(subject: str, message: str) -> None:
    """Log a warning, which goes to stderr unless the program has set up logging; one per subject."""
    if subject not in SAID:
        SAID.add(subject)
        LOGGER.warning(message)


def is_first(folder: Path) -> bool:
    """Tell whether no process that keeps kernels in a folder has lately said that it compiles, and note this one."""
    note, said = folder / "compiling", False
    with suppress(OSError):  # nobody has
        said = time.time() - note.stat().st_mtime < RUN_SECONDS
    with suppress(OSError):  # the disk is full, or there is no such folder
        note.touch()
    return not said


class CompileClock:
    """Adds up how long this process has waited for kernels that are compiled, here or by another process."""

    def __init__(self) -> None:
        self.spent = 0.0

    @contextmanager
    def timing(self, folder: Path | None) -> Iterator[None]:
        """Add up the time of a block; say so after it, if that makes it long."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - start
            # Between two kernels is soon enough: each takes a second at most.
            if self.spent > SILENT_SECONDS and "compiling" not in SAID:
                where = f"once, and keeps them in {folder}" if folder else "and can't save them"
                if folder is None or is_first(folder):
                    warn_once("compiling", f"graphfeed is compiling its kernels for this machine, {where}")
                SAID.add("compiling")


COMPILE_CLOCK = CompileClock()
