"""Expressions for the values of a column: conversions, and conditions that invalid values fulfil."""

from collections.abc import Sequence
from typing import Any

from graphfeed.ingest.tables.arrow_types import arrow, is_arrow_list, is_text, is_uuid

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Strings that stand for a missing number."""
DATE, CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d)?"
INTEGER = (
    "CASE WHEN TRY_CAST({0} AS BIGINT)::VARCHAR = {0} THEN TRY_CAST({0} AS BIGINT) "
    r"WHEN regexp_full_match({0}, '[+-]?\d+') THEN TRY_CAST(ltrim({0}, '+') AS BIGINT) END"
)
"""SQL that converts a string to an integer: 007 and +7 are integers, 1e3 is not."""
STAMP, ZONE = rf"{DATE}[ T]{CLOCK}", r"(Z|[+-]\d\d(:?\d\d)?)"


def literal(value: Any) -> str:
    """Return a string, a number or a list of these as SQL."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "'" + str(value).replace("'", "''") + "'"
    return f"'{value!r}'::DOUBLE" if isinstance(value, float) else repr(value)


def sql_type(arrow_type: Any) -> str:
    """Return the SQL type of a column of plain values; dates and times are integers."""
    types = arrow().types
    if is_arrow_list(arrow_type):
        return f"{sql_type(arrow_type.value_type)}[]"
    if types.is_temporal(arrow_type):
        return "BIGINT"
    if is_text(arrow_type):
        return "VARCHAR"
    names = {"bool": "BOOLEAN", "halffloat": "FLOAT", "float": "FLOAT", "double": "DOUBLE", "null": "VARCHAR"}
    names |= {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"}
    names |= {f"u{name}": f"U{kind}" for name, kind in names.items() if name.startswith("int")}
    return names.get(str(arrow_type), "BLOB")


def plain(column: str, arrow_type: Any) -> str:
    """Return SQL that converts a column of Parquet or NDJSON, with the given Arrow type, to plain values."""
    types = arrow().types
    if types.is_null(arrow_type):
        return "NULL::VARCHAR"
    if is_uuid(arrow_type):
        return f"hex({column}::BLOB)::UUID::VARCHAR"
    if types.is_duration(arrow_type) or not types.is_temporal(arrow_type):
        return f"{column}::{sql_type(arrow_type)}"
    if types.is_date(arrow_type):
        return f"({column}::DATE - DATE '1970-01-01')::BIGINT"
    unit = arrow_type.unit
    if types.is_timestamp(arrow_type):
        return f"epoch_ms({column}) // 1000" if unit == "s" else f"epoch_{unit}({column})"
    return f"epoch_ns({column}) // {10 ** {'s': 9, 'ms': 6, 'us': 3, 'ns': 0}[unit]}"


def text_types() -> list[tuple[Any, str, str, int]]:
    """Return types of strings, each with a pattern, SQL that parses it, and bits of the types that can represent it."""
    pa = arrow()
    return [
        (pa.int64(), "", INTEGER, 0b11),
        # Without a pattern: a failed TRY_CAST raises no exception internally, which would take some 10 us.
        (pa.float64(), "", "TRY_CAST({} AS DOUBLE)", 0b10),
        (pa.bool_(), "true|True|TRUE|false|False|FALSE", "{}::BOOLEAN", 0b100),
        (pa.date32(), DATE, plain("{}::DATE", pa.date32()), 0b1_1110_1000),
        (pa.time32("s"), CLOCK, plain("{}::TIME", pa.time32("s")), 0b1_0000),
        (pa.timestamp("s"), STAMP, plain("{}::TIMESTAMP", pa.timestamp("s")), 0b110_0000),
        (pa.timestamp("ns"), rf"{STAMP}\.\d+", "epoch_ns({}::TIMESTAMP_NS)", 0b100_0000),
        (pa.timestamp("s", "UTC"), rf"{STAMP}{ZONE}", plain("{}::TIMESTAMPTZ", pa.timestamp("s")), 0b1_1000_0000),
        (pa.timestamp("ns", "UTC"), rf"{STAMP}\.\d+{ZONE}", "epoch_ns({}::TIMESTAMPTZ)", 0b1_0000_0000),
    ]


def is_missing(column: str) -> str:
    """Return SQL for whether a string stands for a missing number."""
    return f"coalesce({column} IN {literal(MISSING_TEXTS)}, true)".replace("[", "(").replace("]", ")")


def integer_of_float(column: str) -> str:
    """Return SQL for the integer that a float stands for; the lowest one if it is a fraction, or may be rounded."""
    whole = f"{column} = trunc({column}) AND abs({column}) < 2^53"
    return f"CASE WHEN {whole} THEN TRY_CAST({column} AS BIGINT) ELSE '-9223372036854775808'::BIGINT END"


def is_integer(column: str) -> str:
    """Return SQL for whether a string has the canonical form of an integer: not 007, +7 or 1e3."""
    return f"(TRY_CAST({column} AS BIGINT)::VARCHAR = {column})"


def types_of(column: str, is_id: bool) -> str:
    """Return SQL for the bits of `text_types` that can represent a string: 0 if none can, -1 if it is missing."""
    nothing, integer = is_missing(column), f"WHEN {is_integer(column)} THEN 3"
    if is_id:
        return f"CASE {integer} WHEN {nothing} THEN -1 ELSE 0 END"
    cases = [integer, f"WHEN {nothing} AND coalesce(lower({column}) <> 'nan', true) THEN -1"]
    cases.append(f"WHEN NOT contains('0123456789+-.tTfFnNiI', {column}[1]) THEN 0")  # decides most strings
    found: dict[bool, list[str]] = {True: [], False: []}
    for arrow_type, looks, value, bits in text_types():
        case = f"WHEN {looks_like(column, looks)}TRY({value.format(column)}) IS NOT NULL THEN {bits}"
        found[arrow().types.is_temporal(arrow_type)].append(case)
    # Testing for characters that numbers don't have saves half of the patterns for strings.
    cases.append(f"WHEN contains({column}, ':') OR {column}[5] = '-' AND {column}[8] = '-' THEN")
    return f"CASE {' '.join(cases)} CASE {' '.join(found[True])} ELSE 0 END {' '.join(found[False])} ELSE 0 END"


STRICT = {"int64": "BIGINT", "double": "DOUBLE", "date32[day]": "DATE", "timestamp[s]": "TIMESTAMP"}
"""SQL types of strings that are converted while they are read, by Arrow type."""
OF_ROLES = {
    "id": ["int64"],
    "any": ["int64"],
    "number": ["int64", "double"],
    "weight": ["int64", "double"],
    "integer": ["int64", "date32[day]", "timestamp[s]"],
}
"""The types of `STRICT` that a column may have, by its role."""


def strictly(column: str, arrow_type: Any, role: str) -> str:
    """Return SQL that converts a string to a type of `STRICT`, and raises an error for any other string.

    The result is that of `parse_texts`, and its string is the given one, except for numbers such as 1.50 and times with
    a T. Floats of 2^24 and more must be those that their own strings give: others may be integers that a float rounds.
    So must negative weights, which messages show.
    """
    kind = STRICT[str(arrow_type)]
    value = f"TRY_CAST({column} AS {kind})"
    same = f"{value}::VARCHAR = {column}"
    fits = {
        "DOUBLE": f"{value} < {1 << 24} AND {value} >= {0 if role == 'weight' else -(1 << 24)} OR {same}",
        "DATE": f"strlen({column}) = 10 AND {same}",
        "TIMESTAMP": f"strlen({column}) = 19 AND {value}::VARCHAR = replace({column}, 'T', ' ')",
    }.get(kind, same)
    return f"CASE WHEN {fits} THEN {value} ELSE error('not {kind}') END"


def common_bits(column: str, role: str) -> str:
    """Return SQL for the bits of `text_types` that can represent all strings of a column of some role."""
    # A string or a fraction among numbers makes the row invalid rather than the column a string, except for "any".
    bits = types_of(column, role == "id")
    some = f"bit_and(nullif({bits}, 0))" if role not in ("id", "any") else "NULL"
    whole = f"bit_and(nullif({bits} & ~2, 0))" if role == "integer" else "NULL"
    return f"coalesce({whole}, {some}, bit_and({bits}))"


def in_folder(values: Sequence[str], file: str) -> str:
    """Return SQL for the string of each row's file, such as a value from the name of its folder."""
    return f"({literal(list(values))})[{file}::BIGINT + 1]"


def looks_like(column: str, looks: str) -> str:
    """Return SQL for the beginning of a condition: whether a string matches a pattern, if there is one."""
    return f"regexp_full_match({column}, {literal(looks)}) AND " if looks else ""


def type_of_texts(bits: int | None) -> Any:
    """Return the narrowest of `text_types` for all strings, from their common bits, which are None without strings."""
    if bits in (None, -1):
        return arrow().null()
    return next((kind for place, (kind, *_) in enumerate(text_types()) if (bits or 0) >> place & 1), arrow().string())


def parse_texts(column: str, arrow_type: Any) -> str:
    """Return SQL that parses the strings of a column; strings of another type become NULL."""
    for known, looks, value, _ in text_types():
        if known == arrow_type:
            if arrow().types.is_timestamp(known):  # the column may also have dates and whole seconds
                looks = rf"{DATE}([ T]{CLOCK}(\.\d+)?{ZONE}?)?"
            return f"CASE WHEN {looks_like(column, looks)}true THEN TRY({value.format(column)}) END"
    return column
