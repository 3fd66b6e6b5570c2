"""Finished steps of an interrupted run, with which the next run continues, and the state of the input files.

Without a journal, a run that ends while it sorts edges has to read all tables again, which takes most of the time. It
costs 2 ms for a data set of two steps, and 13 us of CPU time for each input file, whose state is read after each step,
so that a table that changes meanwhile is an error.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphfeed.storage.datasets import SCRATCH, write_text

JOURNAL = f"{SCRATCH}/journal.json"
VERSION = 9
"""Version of the steps' results: a journal of another version is ignored."""


def step_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


class InputFiles:
    """Remembers the sizes and the times of files."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, int]] = {}

    def remember(self, paths: Iterable[str]) -> list[tuple[str, int, int]]:
        """Return the name, the current size and the current time of each file; raise if they have changed."""
        states = []
        for path in paths:
            try:
                status = os.stat(path)
                now = (status.st_size, status.st_mtime_ns)
            except FileNotFoundError:
                if path not in self.known:
                    raise
                now = None
            if now is None or self.known.setdefault(path, now) != now:
                raise ValueError(f"{path} changed while it was read; run again when nothing writes to it")
            states.append((path, *now))
        return states

    def check_unchanged(self) -> None:
        self.remember(self.known)


class Journal:
    """The finished steps of a data set, stored on disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.path.parent.mkdir(exist_ok=True)
        self.steps: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError, KeyError):  # there is none, or it is incomplete
            known = json.loads(self.path.read_text(encoding="utf-8"))
            self.steps = dict(known["steps"]) if known["version"] == VERSION else {}

    def find(self, step: str, key: str) -> dict[str, Any] | None:
        """Return the result of a step if it was done with the same files and options; otherwise forget it."""
        known = self.steps.get(step)
        if known is not None and known["key"] == key:
            return dict(known)
        if known is not None:  # also on disk, because the files of the step are about to be replaced
            self.keep_only(self.steps.keys() - {step})
        return None

    def record_step(self, step: str, key: str, **state: Any) -> None:
        # The results of the step must be on the disk by now.
        self.steps[step] = {"key": key, **state}
        self.keep_only(self.steps)

    def keep_only(self, steps: Iterable[str]) -> None:
        """Forget all other steps, also on disk. The journal is replaced atomically."""
        kept = set(steps)
        self.steps = {step: known for step, known in self.steps.items() if step in kept}
        part = self.path.with_suffix(".part")
        write_text(part, json.dumps({"version": VERSION, "steps": self.steps}))
        part.replace(self.path)
