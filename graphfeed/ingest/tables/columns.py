"""Columns of Arrow batches as NumPy arrays. What is wrong with a value is said with its file and row, or counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_number, is_text
from graphfeed.ingest.tables.table import MISSING_TEXTS, TableSource
from graphfeed.ops.arguments import brief

MISSING_HINT = "the key `missing:` of the table gives a number to take its place"

OnError: TypeAlias = Literal["raise", "skip"]
Bad: TypeAlias = NDArray[np.bool_]


@dataclass
class Problems:
    """What to do about rows that are wrong, and which were left out."""

    on_error: OnError = "raise"
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many rows were left out, by file and reason."""
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    """The first of them."""

    def count(self, file: str, reason: str, rows: int, example: str) -> None:
        self.skipped[file, reason] += rows
        self.examples.setdefault((file, reason), example)

    def add(self, known: Sequence[Mapping[str, Any]]) -> None:
        for entry in known:  # what `as_list` returned to a task
            self.count(entry["file"], entry["reason"], entry["rows"], entry["first"])

    def as_list(self) -> list[dict[str, Any]]:
        return [
            {"file": file, "reason": reason, "rows": rows, "first": self.examples[file, reason]}
            for (file, reason), rows in sorted(self.skipped.items())
        ]


class Batch:
    """Rows of a table, which come out as NumPy arrays. Rows with wrong values are named, or marked to drop."""

    def __init__(self, table: TableSource, rows: Any, first_row: int, problems: Problems, types: Any) -> None:
        # The rows are an Arrow batch. In files of text it has other types than `types`, those of the first rows.
        self.table, self.rows, self.first_row, self.problems, self.types = table, rows, first_row, problems, types
        self.drop: Bad = np.zeros(len(rows), dtype=bool)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def keep(self, values: NDArray[Any]) -> NDArray[Any]:
        return values[~self.drop] if self.drop.any() else values

    def refuse(self, column: str, bad: Bad, reason: str, value: Any = None) -> None:
        """Raise because of the first bad row, or mark all of them."""
        bad = bad & ~self.drop
        if not bad.any():
            return
        row = int(np.argmax(bad))
        # The value is given where the column doesn't have it.
        wrong = self.rows.column(column)[row].as_py() if value is None else value
        message = f"row {self.first_row + row}: {column} is {brief(wrong)}, {reason}"
        if self.problems.on_error == "raise":
            raise ValueError(f"{self.table.name}, {message}")
        self.problems.count(self.table.name, f"{column}: {reason}", int(bad.sum()), message)
        self.drop |= bad

    def type_of(self, column: str) -> Any:
        return self.types.type_of(column)  # over all tables

    def numbers(
        self, column: str, dtype: Any, missing: float | None = None, what: str = "a number", hint: str = ""
    ) -> NDArray[Any]:
        """Return a column of numbers; rows with other values, or none, are refused."""
        pa, pc = arrow(), arrow("compute")
        values = self.rows.column(column)
        if is_text(values.type) and not is_text(self.type_of(column)):
            values = self.parse(column, values, dtype, what)
        elif pa.types.is_null(values.type):
            values = values.cast(dtype)  # no row of the batch has a value
        if pa.types.is_temporal(values.type):
            # Arrow casts dates and times to integers of their own width alone.
            values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())
        if not is_number(values.type):
            raise TypeError(f"{self.table.name}: {column} must be {what}, but the column is {values.type}")
        if pa.types.is_floating(values.type) and pa.types.is_integer(dtype):
            raise TypeError(
                f"{self.table.name}: {column} must be {what}, but the column is {values.type}; save integers"
            )
        if pa.types.is_uint64(values.type) and pa.types.is_integer(dtype) and len(values):
            large = pc.greater(values, pa.scalar((1 << 63) - 1, pa.uint64())).fill_null(False)
            self.refuse(column, as_numpy(large), "which is more than int64 can hold")
            values = pc.if_else(large, pa.scalar(0, pa.uint64()), values)
        if values.null_count:
            if missing is None:
                reason = f"but must be {what}{hint if self.problems.on_error == 'raise' else ''}"
                self.refuse(column, as_numpy(values.is_null()), reason, "missing")
            values = values.fill_null(pa.scalar(missing or 0).cast(values.type))
        return as_numpy(values.cast(dtype, safe=False))

    def parse(self, column: str, values: Any, dtype: Any, what: str) -> Any:
        """Return texts as numbers, and refuse the rows with others; those that say nothing are null."""
        pa, pc = arrow(), arrow("compute")
        special = pa.types.is_temporal(self.type_of(column)) or pa.types.is_boolean(self.type_of(column))
        # Most columns hold nothing but numbers, and are done at once.
        try:
            if not special:
                return values.cast(dtype)
        except pa.ArrowInvalid:
            pass
        values = pc.if_else(pc.is_in(values, pa.array(MISSING_TEXTS)), None, values)
        if special:
            try:
                return values.cast(self.type_of(column))
            except pa.ArrowInvalid as error:
                raise ValueError(f"{self.table.name}: {column} must be {what}: {error}") from error
        if pa.types.is_integer(dtype):
            fine = fits_int64(values)
        else:
            fine = pc.match_substring_regex(values, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
        self.refuse(column, as_numpy(pc.invert(fine).fill_null(False)), f"but must be {what}")
        return pc.if_else(fine, pc.utf8_ltrim(values, "+"), "0").cast(dtype)

    def integers(self, column: str, what: str) -> NDArray[np.int64]:
        return self.numbers(column, arrow().int64(), what=what)

    def ids(self, column: str, texts: bool) -> Any:
        """Return a column of ids: int64, or an Arrow array of texts. Rows without an id are refused."""
        pa = arrow()
        values, arrow_type = self.rows.column(column), self.types.schema.field(column).type
        if not texts:
            if is_text(arrow_type):
                raise TypeError(f"{self.table.name}: {column} has texts, but the ids of these nodes are integers")
            if pa.types.is_temporal(arrow_type) or pa.types.is_boolean(arrow_type):
                raise TypeError(f"{self.table.name}: {column} has {arrow_type}, but an id is an integer or a text")
            self.refuse(column, self.padded(column), "but an integer id has no zero or + before it, as 7 has none")
            return self.integers(column, "an integer id")
        if not (is_text(values.type) or pa.types.is_null(values.type)):
            raise TypeError(f"{self.table.name}: {column} has {arrow_type}, but the ids of these nodes are texts")
        if values.null_count:
            self.refuse(column, as_numpy(values.is_null()), "but must be an id", "missing")
        return values.cast(pa.large_string()).fill_null("")

    def padded(self, column: str) -> Bad:
        """Tell which texts of a column that seems to hold integers aren't written as integers are: 007, +7 or 0x7."""
        pc, values = arrow("compute"), self.rows.column(column)
        if not is_text(values.type):
            return np.zeros(len(self), dtype=bool)
        # Such ids are texts. As integers, 007 and 7 would become one node.
        zero = pc.and_(pc.starts_with(values, "0"), pc.greater(pc.binary_length(values), 1))
        signed = pc.or_(pc.starts_with(values, "+"), pc.starts_with(values, "-0"))
        return as_numpy(pc.or_(zero, signed).fill_null(False))

    def texts(self, column: str) -> Any:
        return self.rows.column(column).cast(arrow().large_string())  # nulls stay

    def feature(self, column: str, missing: float | None) -> NDArray[Any]:
        """Return a column of numbers or of vectors, which all have one length, as an array of one or two dimensions."""
        pa, pc = arrow(), arrow("compute")
        values, arrow_type = self.rows.column(column), self.type_of(column)
        if pa.types.is_temporal(arrow_type):
            raise TypeError(
                f"{self.table.name}: {column} has {arrow_type}, but a feature has numbers; save days, for example"
            )
        if not is_list(arrow_type):
            dtype = arrow_type if is_number(arrow_type) and not pa.types.is_boolean(arrow_type) else pa.float64()
            if pa.types.is_boolean(arrow_type):
                dtype = pa.uint8()
            numbers = self.numbers(column, dtype, missing, hint=f"; {MISSING_HINT}")
            return self.without_nan(column, numbers, missing)
        values = values.cast(arrow_type) if pa.types.is_null(values.type) else values
        absent = as_numpy(values.is_null())
        if missing is None:
            self.refuse(column, absent, f"but must be a vector; {MISSING_HINT}", "missing")
        lengths = as_numpy(pc.list_value_length(values).fill_null(0))
        if missing is not None and column not in self.types.lengths and absent.any():
            raise ValueError(
                f"{self.table.name}: no row has a vector in {column}, so their length isn't known; save vectors of a "
                "fixed size"
            )
        right = self.types.lengths.get(column, 0)
        self.refuse(column, (lengths != right) & ~absent, f"which has another length than {right}, as the first one")
        given = ~absent & ~self.drop
        inner = values.flatten() if given.all() else values.filter(pa.array(given)).flatten()
        if not is_number(arrow_type.value_type):
            raise TypeError(
                f"{self.table.name}: {column} must have vectors of numbers, but has {arrow_type.value_type}"
            )
        try:
            # Floats may round integers, as in a column of numbers.
            inner = inner.cast(arrow_type.value_type, safe=pa.types.is_integer(arrow_type.value_type))
        except pa.ArrowInvalid as error:
            raise ValueError(f"{self.table.name}: {column} has a number that doesn't fit: {error}") from error
        filler = pa.scalar(missing or 0).cast(inner.type)
        if inner.null_count:
            if missing is None:
                lacking = np.zeros(len(self), dtype=bool)
                lacking[given] = as_numpy(inner.is_null()).reshape(-1, right).any(axis=1)
                self.refuse(column, lacking, f"which has a missing number; {MISSING_HINT}")
            inner = inner.fill_null(filler)
        matrix = np.full((len(self), right), filler.as_py(), dtype=as_numpy(inner[:0]).dtype)
        matrix[given] = as_numpy(inner).reshape(int(given.sum()), right)  # `inner` has no numbers of other rows
        return self.without_nan(column, matrix, missing)

    def without_nan(self, column: str, values: NDArray[Any], missing: float | None, value: Any = None) -> NDArray[Any]:
        """Return numbers with `missing` in the place of NaN, or refuse rows with NaN; `value` is as in `refuse`."""
        nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, dtype=bool)
        if not nan.any():
            return values
        if missing is None:
            bad = nan if nan.ndim == 1 else nan.any(axis=tuple(range(1, nan.ndim)))
            self.refuse(column, np.asarray(bad), f"which has NaN; {MISSING_HINT}", value)
            return values
        return np.where(nan, values.dtype.type(missing), values)


class ColumnTypes:
    """The types of the columns of a table, and the lengths of its vectors."""

    def __init__(
        self, schema: Any, common: Mapping[str, Any] | None = None, lengths: Mapping[str, int] | None = None
    ) -> None:
        self.schema, self.common, self.lengths = schema, common or {}, lengths or {}

    def type_of(self, column: str) -> Any:
        # Over all tables that are read one after the other, where that is known.
        return self.common[column] if column in self.common else self.schema.field(column).type


def as_numpy(values: Any) -> NDArray[Any]:
    # There must be no nulls: they would make floats of integers.
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def fits_int64(texts: Any) -> Any:
    """Tell of each text whether it is an integer that int64 can hold; null for those that are missing."""
    pc = arrow("compute")
    limit = pc.if_else(pc.starts_with(texts, "-"), str(1 << 63), str((1 << 63) - 1))
    # Digits of one number are in the order of what they mean.
    large = pc.and_(pc.match_substring_regex(texts, r"^[+-]?\d{19}$"), pc.less_equal(pc.utf8_ltrim(texts, "+-"), limit))
    return pc.or_(pc.match_substring_regex(texts, r"^[+-]?\d{1,18}$"), large)
