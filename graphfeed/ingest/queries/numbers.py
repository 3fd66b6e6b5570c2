"""Expressions for numbers, vectors and parts of a split: values to write, and conditions that invalid values fulfil."""

from graphfeed.ingest.queries.columns import is_integer, is_missing, literal

MOST_INT64 = (1 << 63) - 1
MOST_FLOAT32 = 2.0**128 - 2.0**104
MISSING = "'missing'"
"""A missing value as a message shows it."""


def integer_of_text(sql: str) -> str:
    """Return the integer that a string represents in its canonical form, or NULL."""
    return f"CASE WHEN {is_integer(sql)} THEN TRY_CAST({sql} AS BIGINT) END"


def is_padded(sql: str) -> str:
    """Return whether a string represents an integer with leading zeros or with +."""
    return f"regexp_full_match({sql}, '0.+|\\+.*|-0.*')"


def is_no_integer(sql: str) -> str:
    """Return whether a string is neither missing nor the canonical form of an integer."""
    return f"NOT {is_missing(sql)} AND NOT coalesce({is_integer(sql)}, false)"


def is_no_number(value: str, text: str) -> str:
    """Return whether a string that is not missing was parsed in vain."""
    return f"{value} IS NULL AND NOT {is_missing(text)}"


def lacks_number(sql: str) -> str:
    """Return whether a number of a vector is missing, or the vector."""
    return f"coalesce(list_count({sql}) < len({sql}), true)"


def is_any_number(sql: str, condition: str) -> str:
    """Return whether some number of a vector fulfils a condition on `e`."""
    return f"list_bool_or(list_transform({sql}, lambda e: {condition}))"


def is_infinite_in_float32(value: str, text: str | None) -> str:
    """Return whether a finite number is infinite in float32; `text` is the string that it was parsed from, if any."""
    # A string such as 1e400 is parsed as infinity, but does not contain the "n" of "inf" or "nan".
    finite = f"isfinite({value}::DOUBLE)" if text is None else f"NOT contains(lower({text}), 'n')"
    return f"abs({value}::DOUBLE) > {literal(MOST_FLOAT32)} AND {finite}"


def is_rounded_in_float32(value: str, text: str | None) -> str:
    """Return whether a number is an integer, or its `text` that of one, and float32 can't represent it exactly."""
    # Floats beyond 2^53 may be integers that float64 has already rounded.
    rounded = f"{value}::FLOAT::HUGEINT <> {value}::HUGEINT OR abs({value}::DOUBLE) >= {1 << 53}"
    whole = f"{value} = trunc({value})" if text is None else is_integer(text)
    return f"CASE WHEN abs({value}::DOUBLE) BETWEEN {1 << 24} AND 2e19 THEN {whole} AND ({rounded}) END"


def is_no_weight(weight: str) -> str:
    """Return whether a float32 is not a finite number of 0 or more."""
    return f"NOT coalesce({weight} >= 0 AND isfinite({weight}), false)"


def fill_number(sql: str, kind: str, value: bool | float | None) -> str:
    """Return a number of an SQL type, with `value` instead of NULL and NaN."""
    number = f"({sql})::{kind}"
    if value is None:
        return number
    if isinstance(value, float):
        return f"(CASE WHEN {number} IS NULL OR isnan({number}) THEN {literal(value)} ELSE {number} END)::{kind}"
    return f"coalesce({sql}, {literal(value)})::{kind}"


def fill_vector(sql: str, kind: str, length: int, value: bool | float | None) -> str:
    """Return a vector of numbers of an SQL type, with `value` instead of NULL, NaN and all numbers of a missing one."""
    given = f"coalesce({sql}, list_resize([]::{kind}[], {length}))"
    return f"list_transform({given}, lambda e: {fill_number('e', kind, value)})"


def is_one(sql: str) -> str:
    """Return whether a number or a bool of a mask is 1."""
    return f"(coalesce({sql}::DOUBLE, 0) = 1)"


def is_no_mask(sql: str) -> str:
    """Return whether a number of a mask is neither 0 nor 1; missing is 0."""
    return f"NOT {is_one(sql)} AND coalesce({sql}::DOUBLE, 0) <> 0"


def is_between(sql: str, low: int | None, high: int | None) -> str:
    """Return whether an integer is at least `low` and below `high`, unless these are None; false if missing."""
    bounds = [*([] if low is None else [f"({sql}) >= {low}"]), *([] if high is None else [f"({sql}) < {high}"])]
    return f"coalesce({' AND '.join(bounds)}, false)"


def as_seconds(sql: str, nanoseconds: int) -> str:
    """Return a number of units of this length in whole seconds, rounded down."""
    each = 10**9 // nanoseconds
    if each == 0:
        return f"({sql}) * {nanoseconds // 10**9}"
    # The engine rounds towards zero.
    return f"(({sql}) - ((({sql}) % {each}) + {each}) % {each}) // {each}"


def is_value(sql: str, wanted: str, number: str | None, equal: float | None) -> str:
    """Return whether a value is a string, or as a `number` equal to `equal`, if that is given."""
    same = f"{sql}::VARCHAR = {literal(wanted)}"
    if equal is not None:
        same = f"({same} OR {number}::DOUBLE = {literal(float(equal))})"
    return f"coalesce({same}, false)"


def label_of_float(value: str) -> str:
    """Return the integer that a label of DOUBLE represents, -1 for NaN."""
    return f"CASE WHEN isnan({value}) THEN -1 ELSE TRY_CAST({value} AS BIGINT) END"
