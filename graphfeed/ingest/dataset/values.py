"""SQL for the values of a column, and rules for invalid rows."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.settings import MOST_FLOAT32
from graphfeed.ingest.dataset.split import Split
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
from graphfeed.ingest.tables.scans import is_integer, is_missing, literal, parse_texts, sql_type
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


def numbers(column: TableColumn, what: str, *, whole: bool = False, optional: bool = False, hint: str = "") -> Values:
    """Return a column of numbers. Missing values are NULL, and invalid unless `optional`."""
    pa, sql, arrow_type = arrow(), column.sql, column.type
    checks = []
    missing = f"{sql} IS NULL"
    if not (is_arrow_number(arrow_type) or pa.types.is_temporal(arrow_type) or pa.types.is_null(arrow_type)):
        raise TypeError(f"{column.table}: {column.name} must be {what}, but the column is {arrow_type}")
    if whole and pa.types.is_floating(arrow_type):
        raise TypeError(f"{column.table}: {column.name} must be {what}, but the column is {arrow_type}; save integers")
    if pa.types.is_null(arrow_type):
        sql = "NULL::DOUBLE" if not whole else "NULL::BIGINT"
    elif column.raw:
        sql = parse_texts(column.sql, arrow_type)
        missing = f"{sql} IS NULL"
        wrong = f"{missing} AND NOT {is_missing(column.sql)}"
        checks.append(Check(wrong, column.name, f"but must be {what}", column.shown))
    elif pa.types.is_uint64(arrow_type) and whole:
        large = f"{sql} > {(1 << 63) - 1}"
        checks.append(Check(large, column.name, "which is more than int64 can represent", sql))
        sql = f"TRY_CAST({sql} AS BIGINT)"
    if not optional:
        checks.append(Check(missing, column.name, f"but must be {what}{hint}", "'missing'"))
    return Values(sql, checks)


def ids(column: TableColumn, texts: bool) -> Values:
    """Return a column of ids: strings if `texts`, otherwise integers."""
    pa, sql, arrow_type = arrow(), column.sql, column.type
    if texts:
        if not column.raw and not (is_id(arrow_type) or pa.types.is_null(arrow_type)):
            raise TypeError(f"{column.table}: {column.name} has {arrow_type}, but the ids of these nodes are strings")
        return Values(f"{sql}::VARCHAR", [Check(f"{sql} IS NULL", column.name, "but must be an id", "'missing'")])
    if column.raw or is_text(arrow_type):
        reason = "but an integer id must be written without leading zeros and +, such as 7"
        padded = f"regexp_full_match({sql}, '0.+|\\+.*|-0.*')"
        wrong = f"NOT {is_missing(sql)} AND NOT coalesce({is_integer(sql)}, false)"
        return Values(
            f"CASE WHEN {is_integer(sql)} THEN TRY_CAST({sql} AS BIGINT) END",
            [
                Check(padded, column.name, reason, sql),
                Check(wrong, column.name, "but must be an integer id", sql),
                Check(is_missing(sql), column.name, "but must be an integer id", "'missing'"),
            ],
        )
    if pa.types.is_temporal(arrow_type) or pa.types.is_boolean(arrow_type):
        raise TypeError(f"{column.table}: {column.name} has {arrow_type}, but an id must be an integer or a string")
    found = numbers(column, "an integer id", whole=True)
    return Values(f"{found.sql}::BIGINT", found.checks)


def feature(column: TableColumn, missing: float | None, length: int | None, hint: str) -> Values:
    """Return a column of numbers, or of vectors of the same length; `missing` replaces NULL and NaN."""
    name, arrow_type, types = column.name, column.type, arrow().types
    if types.is_temporal(arrow_type):
        raise TypeError(f"{column.table}: {name} has {arrow_type}, but a feature has numbers; save days, for example")
    inner = item_type(arrow_type)
    may = may_fill(inner, missing)
    if missing is not None and not may:
        hint = f"; {missing}, as given by `missing:`, is not a valid {inner}"
    if not is_arrow_list(arrow_type):
        found = numbers(column, "a number", optional=may, hint=hint)
        nan = Check(f"isnan({found.sql}::DOUBLE)", name, NAN_REASON, column.shown)
        checks = [*found.checks, *([nan] if missing is None and not types.is_integer(arrow_type) else [])]
        dtype = np.dtype(np.uint8) if types.is_boolean(arrow_type) else dtype_of(arrow_type)
        checks += beyond_float32(column, found) if dtype.kind == "f" else []
        return Values(fill_missing(found.sql, arrow_type, missing), checks, dtype=dtype)
    if not is_arrow_number(inner) and not types.is_null(inner):
        raise TypeError(f"{column.table}: {name} must have vectors of numbers, but has {inner}")
    sql, size = column.sql, length or 0
    checks = []
    if missing is None:
        checks.append(Check(f"{sql} IS NULL", name, f"but must be a vector; {MISSING_HINT}", "'missing'"))
    checks.append(Check(f"len({sql}) <> {size}", name, f"but vectors must have length {size}, as the first one", sql))
    if not may:
        lacking = f"coalesce(list_count({sql}) < len({sql}), true)"
        reason = f"which has a missing number{hint or f'; {MISSING_HINT}'}"
        checks.append(Check(lacking, name, reason, sql))
    if types.is_floating(inner):
        checks += beyond_float32(column, Values(sql, length=size))
    if missing is None:
        if types.is_floating(inner):
            checks.append(Check(f"list_contains({sql}, 'nan')", name, NAN_REASON, sql))
        return Values(sql, checks, size, dtype_of(inner))
    given = f"coalesce({sql}, list_resize([]::{sql_type(inner)}[], {size}))"
    return Values(
        f"list_transform({given}, lambda e: {fill_missing('e', inner, missing)})", checks, size, dtype_of(inner)
    )


def beyond_float32(column: TableColumn, values: Values, joined: bool = False) -> list[Check]:
    """Return rules for numbers that float32 can represent; integers exactly if the feature also has floats."""
    value = "e" if values.length is not None else f"({values.sql})"
    number = f"{value}::DOUBLE"
    # A string such as 1e400 is parsed as infinity, but does not contain the "n" of "inf" or "nan".
    finite = f"NOT contains(lower({column.sql}), 'n')" if column.raw else f"isfinite({number})"
    wrong = [f"abs({number}) > {literal(MOST_FLOAT32)} AND {finite}"]
    if joined or column.mixed or column.raw:
        # Floats beyond 2^53 may be integers that float64 has already rounded.
        rounded = f"{value}::FLOAT::HUGEINT <> {value}::HUGEINT OR abs({number}) >= {1 << 53}"
        whole = is_integer(column.sql) if column.raw and not joined else f"{value} = trunc({value})"
        wrong.append(f"CASE WHEN abs({number}) BETWEEN {1 << 24} AND 2e19 THEN {whole} AND ({rounded}) END")
    if values.length is not None:
        wrong = [f"list_bool_or(list_transform({values.sql}, lambda e: {broken}))" for broken in wrong]
    return [Check(broken, column.name, NARROW_REASON, column.shown) for broken in wrong]


def may_fill(arrow_type: Any, missing: float | None) -> bool:
    """Return whether a number can replace missing values of a type; a fraction can't replace integers."""
    types = arrow().types
    if missing is None or types.is_boolean(arrow_type):
        return missing in (0, 1)
    if not types.is_integer(arrow_type):
        return True
    bounds = np.iinfo(arrow_type.to_pandas_dtype())
    return missing % 1 == 0 and bounds.min <= missing <= bounds.max


def fill_missing(sql: str, arrow_type: Any, missing: float | None) -> str:
    """Return SQL for numbers, with `missing` instead of NULL and NaN."""
    types = arrow().types
    kind = "DOUBLE" if types.is_null(arrow_type) else sql_type(arrow_type)
    if missing is None or not may_fill(arrow_type, missing):
        return f"({sql})::{kind}"
    if types.is_boolean(arrow_type):
        return f"coalesce({sql}, {literal(bool(missing))})::BOOLEAN"
    if types.is_integer(arrow_type):
        return f"coalesce({sql}, {literal(int(missing))})::{kind}"
    value = f"({sql})::{kind}"
    return f"(CASE WHEN {value} IS NULL OR isnan({value}) THEN {literal(float(missing))} ELSE {value} END)::{kind}"


def dtype_of(arrow_type: Any) -> np.dtype[Any]:
    """Return the dtype to write numbers with."""
    types = arrow().types
    if types.is_null(arrow_type) or types.is_float64(arrow_type):
        return np.dtype(np.float32)
    found: np.dtype[Any] = np.dtype(arrow_type.to_pandas_dtype())
    return found


def masks(columns: dict[str, TableColumn]) -> tuple[dict[str, str], list[Check]]:
    """Return SQL for whether a row belongs to each part of a split, from bool columns."""
    parts: dict[str, str] = {}
    checks = []
    for part, column in columns.items():
        found = numbers(column, "a number", optional=True)
        one = f"coalesce({found.sql}::DOUBLE, 0) = 1"
        neither = f"NOT ({one}) AND coalesce({found.sql}::DOUBLE, 0) <> 0"
        checks += [*found.checks, Check(neither, column.name, "but a mask must be 0 or 1", column.shown)]
        if parts:
            other = f"({one}) AND ({' OR '.join(parts.values())})"
            reason = f"but the row already belongs to another part than {part}"
            checks.append(Check(other, column.name, reason, column.shown))
        parts[part] = f"({one})"
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
    parts = {"train": f"< {first}", "validation": f"BETWEEN {first} AND {second - 1}", "test": f">= {second}"}
    return {part: f"coalesce(({found.sql}) {own}, false)" for part, own in parts.items()}, found.checks


def as_time(text: str, unit: str) -> int:
    """Convert a date or a time to a number of units since 1970, rounded up."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    nanoseconds = int(np.datetime64(moment, "us").astype(np.int64)) * 1000
    return -(-nanoseconds // {"day": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit])


def is_value(column: TableColumn, wanted: str) -> str:
    """Return SQL for whether a value is the split's; 1, 1.0 and true are equal for numbers and bools."""
    same = f"{column.sql}::VARCHAR = {literal(wanted)}"
    if is_arrow_number(column.type):
        number: Any = {"true": 1.0, "false": 0.0}.get(wanted.lower())
        try:
            number = float(wanted) if number is None else number
        except ValueError:
            return f"coalesce({same}, false)"
        value = parse_texts(column.sql, column.type) if column.raw else column.sql
        same = f"({same} OR {value}::DOUBLE = {literal(number)})"
    return f"coalesce({same}, false)"
