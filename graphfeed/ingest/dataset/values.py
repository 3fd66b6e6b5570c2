"""The values that a column of a table gives, and the rules for its invalid rows."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.split import Split
from graphfeed.ingest.queries import numbers as sql_of
from graphfeed.ingest.queries.columns import is_missing, parse_texts, sql_type
from graphfeed.ingest.queries.numbers import MISSING
from graphfeed.ingest.tables.arrow_types import (
    arrow,
    is_arrow_list,
    is_arrow_number,
    is_id,
    is_text,
    item_type,
    unit_of,
)
from graphfeed.ingest.tables.relation import TableColumn
from graphfeed.ops.arguments import brief

MISSING_HINT = "the key `missing:` of the table gives a number to replace it"
NAN_REASON = f"which has NaN; {MISSING_HINT}"
ROUNDED_REASON = "which float64 may have rounded; save the labels as integers, without NaN"
NARROW_REASON = "which float32 can't represent; scale it, or save integers as a feature without floats"


@dataclass(frozen=True)
class Check:
    """A rule that rows may break."""

    broken: str
    """SQL for whether a row breaks the rule."""
    column: str
    reason: str
    shown: str
    """SQL for the value that the message shows."""


@dataclass(frozen=True)
class Values:
    """The values of a column as SQL, and their rules."""

    sql: str
    checks: list[Check] = field(default_factory=list)
    length: int | None = None
    """Length of the vectors; None for numbers."""
    dtype: Any = None
    """Dtype of the array to write."""

    @property
    def empty(self) -> NDArray[Any]:
        """An array without rows."""
        return np.empty((0,) if self.length is None else (0, self.length), dtype=self.dtype)


def rule(column: TableColumn, broken: str, reason: str, shown: str | None = None) -> Check:
    """Return a rule for the values of a column, which the message shows by default."""
    return Check(broken, column.name, reason, shown or column.shown)


def numbers(column: TableColumn, what: str, *, whole: bool = False, optional: bool = False, hint: str = "") -> Values:
    """Return a column of numbers. Missing values are NULL, and invalid unless `optional`."""
    types, sql, arrow_type, checks = arrow().types, column.sql, column.type, []
    if not (is_arrow_number(arrow_type) or types.is_temporal(arrow_type) or types.is_null(arrow_type)):
        raise TypeError(f"{column.table}: {column.name} must be {what}, but the column is {arrow_type}")
    if whole and types.is_floating(arrow_type):
        raise TypeError(f"{column.table}: {column.name} must be {what}, but the column is {arrow_type}; save integers")
    missing = f"{sql} IS NULL"
    if types.is_null(arrow_type):
        sql = f"NULL::{'BIGINT' if whole else 'DOUBLE'}"
    elif column.raw:
        sql = parse_texts(column.sql, arrow_type)
        missing = f"{sql} IS NULL"
        checks.append(rule(column, sql_of.is_no_number(sql, column.sql), f"but must be {what}"))
    elif types.is_uint64(arrow_type) and whole:
        checks.append(rule(column, f"{sql} > {sql_of.MOST_INT64}", "which is more than int64 can represent"))
        sql = f"TRY_CAST({sql} AS BIGINT)"
    if not optional:
        checks.append(rule(column, missing, f"but must be {what}{hint}", MISSING))
    return Values(sql, checks)


def ids(column: TableColumn, texts: bool) -> Values:
    """Return a column of ids: strings if `texts`, otherwise integers."""
    types, sql, arrow_type = arrow().types, column.sql, column.type
    if texts:
        if not column.raw and not (is_id(arrow_type) or types.is_null(arrow_type)):
            raise TypeError(f"{column.table}: {column.name} has {arrow_type}, but the ids of these nodes are strings")
        return Values(f"{sql}::VARCHAR", [rule(column, f"{sql} IS NULL", "but must be an id", MISSING)])
    if column.raw or is_text(arrow_type):
        reason = "but an integer id must be written without leading zeros and +, such as 7"
        padded = rule(column, sql_of.is_padded(sql), reason)
        wrong = rule(column, sql_of.is_no_integer(sql), "but must be an integer id")
        missing = rule(column, is_missing(sql), "but must be an integer id", MISSING)
        return Values(sql_of.integer_of_text(sql), [padded, wrong, missing])
    if types.is_temporal(arrow_type) or types.is_boolean(arrow_type):
        raise TypeError(f"{column.table}: {column.name} has {arrow_type}, but an id must be an integer or a string")
    found = numbers(column, "an integer id", whole=True)
    return Values(f"({found.sql})::BIGINT", found.checks)


def feature(column: TableColumn, missing: float | None, length: int | None, hint: str) -> Values:
    """Return a column of numbers, or of vectors of the same length; `missing` replaces NULL and NaN."""
    name, arrow_type, types = column.name, column.type, arrow().types
    if types.is_temporal(arrow_type):
        raise TypeError(f"{column.table}: {name} has {arrow_type}, but a feature has numbers; save days, for example")
    inner = item_type(arrow_type)
    may, kind, dtype = may_fill(inner, missing), number_type(inner), dtype_of(inner)
    filling = filler(inner, missing)
    if missing is not None and not may:
        hint = f"; {missing}, as given by `missing:`, is not a valid {inner}"
    if not is_arrow_list(arrow_type):
        found = numbers(column, "a number", optional=may, hint=hint)
        checks = list(found.checks)
        if missing is None and not types.is_integer(arrow_type):
            checks.append(rule(column, f"isnan({found.sql}::DOUBLE)", NAN_REASON))
        dtype = np.dtype(np.uint8) if types.is_boolean(arrow_type) else dtype
        checks += beyond_float32(column, found) if dtype.kind == "f" else []
        return Values(sql_of.fill_number(found.sql, kind, filling), checks, dtype=dtype)
    if not is_arrow_number(inner) and not types.is_null(inner):
        raise TypeError(f"{column.table}: {name} must have vectors of numbers, but has {inner}")
    sql, size, checks = column.sql, length or 0, []
    if missing is None:
        checks.append(rule(column, f"{sql} IS NULL", f"but must be a vector; {MISSING_HINT}", MISSING))
    reason = f"but vectors must have length {size}, as the first one"
    checks.append(rule(column, f"len({sql}) <> {size}", reason))
    if not may:
        reason = f"which has a missing number{hint or f'; {MISSING_HINT}'}"
        checks.append(rule(column, sql_of.lacks_number(sql), reason))
    if types.is_floating(inner):
        checks += beyond_float32(column, Values(sql, length=size))
    if missing is None:
        checks += [rule(column, f"list_contains({sql}, 'nan')", NAN_REASON)] if types.is_floating(inner) else []
        return Values(sql, checks, size, dtype)
    return Values(sql_of.fill_vector(sql, kind, size, filling), checks, size, dtype)


def beyond_float32(column: TableColumn, values: Values, joined: bool = False) -> list[Check]:
    """Return rules for numbers that float32 can represent; integers exactly if the feature also has floats."""
    value = "e" if values.length is not None else f"({values.sql})"
    text = column.sql if column.raw else None
    wrong = [sql_of.is_infinite_in_float32(value, text)]
    if joined or column.mixed or column.raw:
        wrong.append(sql_of.is_rounded_in_float32(value, None if joined else text))
    if values.length is not None:
        wrong = [sql_of.is_any_number(values.sql, broken) for broken in wrong]
    return [rule(column, broken, NARROW_REASON) for broken in wrong]


def may_fill(arrow_type: Any, missing: float | None) -> bool:
    """Return whether a number can replace missing values of a type; a fraction can't replace integers."""
    types = arrow().types
    if missing is None or types.is_boolean(arrow_type):
        return missing in (0, 1)
    if not types.is_integer(arrow_type):
        return True
    bounds = np.iinfo(arrow_type.to_pandas_dtype())
    return missing % 1 == 0 and bounds.min <= missing <= bounds.max


def filler(arrow_type: Any, missing: float | None) -> bool | float | None:
    """Return the number of a type that replaces missing ones, or None."""
    types = arrow().types
    if missing is None or not may_fill(arrow_type, missing):
        return None
    kind = bool if types.is_boolean(arrow_type) else int if types.is_integer(arrow_type) else float
    return kind(missing)


def number_type(arrow_type: Any) -> str:
    """Return the SQL type of numbers; a column without values has floats."""
    return "DOUBLE" if arrow().types.is_null(arrow_type) else sql_type(arrow_type)


def dtype_of(arrow_type: Any) -> np.dtype[Any]:
    """Return the dtype to write numbers with; strings have none."""
    types = arrow().types
    if types.is_null(arrow_type) or types.is_float64(arrow_type) or not is_arrow_number(arrow_type):
        return np.dtype(np.float32)
    found: np.dtype[Any] = np.dtype(arrow_type.to_pandas_dtype())
    return found


def masks(columns: dict[str, TableColumn]) -> tuple[dict[str, str], list[Check]]:
    """Return SQL for whether a row belongs to each part of a split, from bool columns."""
    parts: dict[str, str] = {}
    checks = []
    for part, column in columns.items():
        found = numbers(column, "a number", optional=True)
        one = sql_of.is_one(found.sql)
        checks += [*found.checks, rule(column, sql_of.is_no_mask(found.sql), "but a mask must be 0 or 1")]
        if parts:
            reason = f"but the row already belongs to another part than {part}"
            checks.append(rule(column, f"{one} AND ({' OR '.join(parts.values())})", reason))
        parts[part] = one
    return parts, checks


def parts_of_time(column: TableColumn, split: Split) -> tuple[dict[str, str], list[Check]]:
    """Return SQL for whether a row belongs to each part of a split by time."""
    found = numbers(column, "a time", whole=True)
    bounds = []
    for name in ("train_until", "validation_until"):
        value, unit = getattr(split, name), unit_of(column.type)
        try:
            bounds.append(int(value) if unit is None else as_time(value, unit.removesuffix(" in UTC")))
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(
                f"{column.table}: {name} must be a bound of {column.name}, which has {column.type}, but is "
                f"{brief(value)}"
            ) from error
    first, second = bounds
    if second < first:
        raise ValueError(f"validation_until must not be before train_until, but is {split.validation_until}")
    parts = {"train": (None, first), "validation": (first, second), "test": (second, None)}
    return {part: sql_of.is_between(found.sql, *own) for part, own in parts.items()}, found.checks


NANOSECONDS = {"day": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
"""Length of the units of times."""


def as_time(text: str, unit: str, *, down: bool = False) -> int:
    """Convert a date or a time to a number of units since 1970, rounded up, or `down`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    nanoseconds, each = int(np.datetime64(moment, "us").astype(np.int64)) * 1000, NANOSECONDS[unit]
    return nanoseconds // each if down else -(-nanoseconds // each)


def in_seconds(column: TableColumn, values: Values) -> tuple[Values, str]:
    """Return a column of dates or times in seconds since 1970, rounded down, and the unit."""
    unit = unit_of(column.type) or "numbers"
    name, zone = unit.removesuffix(" in UTC"), " in UTC" if unit.endswith(" in UTC") else ""
    if name not in NANOSECONDS:
        raise TypeError(
            f"{column.table}: {column.name} must have dates or times, because time_unit is 's', but has {column.type}"
        )
    return replace(values, sql=sql_of.as_seconds(values.sql, NANOSECONDS[name])), f"s{zone}"


def is_until(column: TableColumn, bound: Any) -> str:
    """Return SQL for whether a time is at most a bound; false without a time."""
    found, unit = numbers(column, "a time", whole=True), unit_of(column.type)
    try:
        latest = int(bound) if unit is None else as_time(bound, unit.removesuffix(" in UTC"), down=True)
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"{column.table}: until must be a bound of {column.name}, which has {column.type}, but is {brief(bound)}"
        ) from error
    return f"coalesce(({found.sql}) <= {latest}, false)"


def is_value(column: TableColumn, wanted: str) -> str:
    """Return SQL for whether a value is the split's; 1, 1.0 and true are equal for numbers and bools."""
    number, value = None, column.sql
    if is_arrow_number(column.type):
        value = parse_texts(column.sql, column.type) if column.raw else column.sql
        try:
            number = float({"true": "1", "false": "0"}.get(wanted.lower(), wanted))
        except ValueError:
            number = None
    return sql_of.is_value(column.sql, wanted, value, number)
