"""Builds of data sets that stop halfway, as if the process had been killed."""

from pathlib import Path
from typing import Any

import pytest

from graphfeed.ingest import Spec, build_dataset
from graphfeed.ingest.dataset.journal import Journal


class Stopped(BaseException):
    """Stands for the end of the process."""


def stop_before(spec: Spec, folder: Path, step: str) -> None:
    """Build until a step is about to be recorded as finished, and stop there."""
    note = Journal.record_step

    def note_or_stop(journal: Journal, name: str, key: str, **state: Any) -> None:
        if name == step:
            raise Stopped
        note(journal, name, key, **state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "record_step", note_or_stop)
        with pytest.raises(Stopped):
            build_dataset(spec, folder)
