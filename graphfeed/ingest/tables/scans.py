"""SQL for reading Parquet, text files and NDJSON by DuckDB. It has numbers instead of the names of columns."""

import gzip
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from graphfeed.ingest.tables.arrow_types import arrow, is_arrow_list, is_text, is_uuid
from graphfeed.ops.process import import_optional, install_hint

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Strings that stand for a missing number."""
FILE_ROWS = 40
"""A row of a Parquet file has the number `file << FILE_ROWS | row`."""
LINE_BYTES = 1 << 22
"""Maximum length of a line of text; a longer one may have an unclosed quote."""
SAFE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Settings that prevent DuckDB from loading extensions that don't come with it."""
DATE, CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d)?"
INTEGER = (
    "CASE WHEN TRY_CAST({0} AS BIGINT)::VARCHAR = {0} THEN TRY_CAST({0} AS BIGINT) "
    r"WHEN regexp_full_match({0}, '[+-]?\d+') THEN TRY_CAST(ltrim({0}, '+') AS BIGINT) END"
)
"""SQL that converts a string to an integer: 007 and +7 are integers, 1e3 is not."""
STAMP, ZONE = rf"{DATE}[ T]{CLOCK}", r"(Z|[+-]\d\d(:?\d\d)?)"


def duckdb() -> Any:
    return import_optional("duckdb", "reading tables", install_hint("arrow"))


def literal(value: Any) -> str:
    """Return a string, a number or a list of these as SQL."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "'" + str(value).replace("'", "''") + "'"
    return f"'{value!r}'::DOUBLE" if isinstance(value, float) else repr(value)


def paths(files: Sequence[Path]) -> str:
    # Brackets escape the special characters of patterns.
    return literal([re.sub(r"([*?\[])", r"[\1]", str(path)) for path in files])


def is_gzip(file: Path) -> bool:
    return file.suffix.lower() == ".gz"


def open_text(file: Path, mode: str, **options: Any) -> Any:
    return (gzip.open if is_gzip(file) else open)(file, mode, **options)


def compression(file: Path) -> str:
    # A name with a ? hides its suffix from the engine, as if it were a URL.
    return f"compression='{'gzip' if is_gzip(file) else 'none'}'"


def numbered(count: int) -> str:
    return ", ".join(f"c{number}" for number in range(count))


def parquet(files: Sequence[Path], columns: int) -> str:
    return f"read_parquet({paths(files)}, hive_partitioning=false) AS t({numbered(columns)})"


def text_lines(files: Sequence[Path], columns: int, delimiter: str, skip: int = 0, quoted: bool = True) -> str:
    """Return SQL that reads the lines of files as rows, without the first `skip` lines of each."""
    names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(columns))
    quote = "'\"'" if quoted else "''"
    return (
        f"read_csv({paths(files)}, auto_detect=false, columns={{{names}}}, header=false, skip={skip}, "
        f"delim={literal(delimiter)}, quote={quote}, escape={quote}, nullstr='', max_line_size={LINE_BYTES}, "
        f"hive_partitioning=false, null_padding=false, {compression(files[0])}, "
        f"strict_mode={str(quoted).lower()}, store_rejects={str(quoted).lower()})"
    )


def first_csv_rows(file: Path, delimiter: str, skip: int, count: int) -> Any:
    """Return the first rows of a CSV file as an Arrow table, with types guessed from them."""
    settings = f"delim={literal(delimiter)}, header=false, skip={skip}, hive_partitioning=false, {compression(file)}"
    lines = f"read_csv({paths([file])}, {settings})"
    with duckdb().connect(config=SAFE) as connection:
        return connection.sql(f"SELECT * FROM {lines} LIMIT {count}").to_arrow_table()


def json_lines(file: Path, columns: int = 0) -> str:
    alias = f" AS t({numbered(columns)})" if columns else ""
    return (
        f"read_json({paths([file])}, format='newline_delimited', records='true', sample_size=-1, "
        f"hive_partitioning=false, {compression(file)}){alias}"
    )


def json_schema(file: Path, known: Any) -> Any:
    """Return the columns that occur in any line, with types from all lines. None as `known` opens a new connection."""
    with open_text(file, "rb") as lines:
        if not any(map(bytes.strip, lines)):
            raise ValueError("it has no lines")
    with duckdb().connect(config=SAFE) if known is None else nullcontext(known) as connection:
        found = connection.execute(f"SELECT * FROM {json_lines(file)} LIMIT 0").description
    return arrow().schema([(name, json_type(str(kind))) for name, kind, *_ in found])


def json_type(kind: str) -> Any:
    pa = arrow()
    if kind.endswith("[]"):
        return pa.list_(json_type(kind.removesuffix("[]")))
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return pa.timestamp("s")
    names = {"BOOLEAN": pa.bool_(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64()}
    names["HUGEINT"] = pa.int64()  # DuckDB's type for numbers that may be negative or large
    names |= dict.fromkeys(("VARCHAR", "TIME", "UUID"), pa.string()) | {'"NULL"': pa.null()}
    # Values of several kinds have the type JSON.
    return names.get(kind, pa.binary())


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
    return f"coalesce({column} IN {literal(MISSING_TEXTS)}, true)".replace("[", "(").replace("]", ")")


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
    "integer": ["int64", "date32[day]", "timestamp[s]"],
}
"""The types of `STRICT` that a column may have, by its role."""


def strictly(column: str, arrow_type: Any) -> str:
    """Return SQL that converts a string to a type of `STRICT`, and raises an error for any other string.

    The result is that of `parse_texts`, and its string is the given one, except for numbers such as 1.50 and times with
    a T. Floats of 2^24 and more must be those that their own strings give: others may be integers that a float rounds.
    """
    kind = STRICT[str(arrow_type)]
    value = f"TRY_CAST({column} AS {kind})"
    same = f"{value}::VARCHAR = {column}"
    fits = {
        "DOUBLE": f"abs({value}) < {1 << 24} OR {same}",
        "DATE": f"strlen({column}) = 10 AND {same}",
        "TIMESTAMP": f"strlen({column}) = 19 AND {value}::VARCHAR = replace({column}, 'T', ' ')",
    }.get(kind, same)
    return f"CASE WHEN {fits} THEN {value} ELSE error('not {kind}') END"


def looks_like(column: str, looks: str) -> str:
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
