"""The split of a table: which of its rows are for training, validation and testing."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from graphfeed.ingest.dataset.settings import is_column, is_whole
from graphfeed.ops.arguments import brief

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Which rows are for training, validation and testing.

    With a `column`, the parts are values of it. With a `time`, a column of integers, dates or times, the rows before
    `train_until` are for training, those before `validation_until` for validation, and all others for testing.
    Otherwise `train`, `validation` and `test` are names of bool columns.
    """

    column: str | None = None
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    time: str | None = None
    train_until: Any = None
    validation_until: Any = None

    def __post_init__(self) -> None:
        if self.time is not None:
            self.check_time()
            return
        if self.train_until is not None or self.validation_until is not None:
            raise ValueError("train_until and validation_until are bounds of times, but time names no column")
        for name in ("column", *PARTS):
            value = getattr(self, name)
            of_column = name != "column" and self.column is not None and isinstance(value, (bool, float, date))
            if not (value is None or is_column(value) or of_column):
                raise TypeError(f"{name} must be a name or a value, but is {brief(value)}")
            if value is not None:
                object.__setattr__(self, name, str(value).lower() if isinstance(value, bool) else str(value))
        if not any(self.parts.values()):
            if self.column is None:
                raise ValueError("split must name a column, or bool columns for train, validation and test")
            for part in PARTS:
                object.__setattr__(self, part, part)
        named = list(self.parts.values())
        if len(set(named)) < len(named):
            raise ValueError(f"split must name a different column or value for each part, but names {named}")

    def check_time(self) -> None:
        """Raise unless this is a split by time with two bounds."""
        if self.column is not None or self.parts or not is_column(self.time):
            raise ValueError("a split by time needs the name of a column as its time, two bounds, and nothing else")
        object.__setattr__(self, "time", str(self.time))
        for name in ("train_until", "validation_until"):
            value = getattr(self, name)
            if not is_whole(value) and not isinstance(value, (str, date)):
                raise TypeError(f"{name} must be an integer, a date or a time, but is {brief(value)}")
            object.__setattr__(self, name, str(value) if isinstance(value, date) else value)

    @property
    def parts(self) -> dict[str, str]:
        """Values or columns of the parts that are given."""
        return {part: value for part in PARTS if (value := getattr(self, part)) is not None}
