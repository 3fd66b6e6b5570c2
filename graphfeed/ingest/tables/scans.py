"""What DuckDB reads, as SQL: Parquet, texts and NDJSON. Names of columns don't get there: columns have numbers."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_text
from graphfeed.ops.process import import_optional, install_hint

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""What texts say for a number that is missing."""
FILE_ROWS = 40
"""A row of a Parquet file has the number `file << FILE_ROWS | row`."""
LINE_BYTES = 1 << 22
"""How long a line of text may be: in a longer one, a quote may have no end."""
SAFE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Nothing is loaded that doesn't come with DuckDB."""
DATE, CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d)?"
STAMP, ZONE = rf"{DATE}[ T]{CLOCK}", r"(Z|[+-]\d\d(:?\d\d)?)"


def duckdb() -> Any:
    return import_optional("duckdb", "reading tables", install_hint("arrow"))


def literal(value: Any) -> str:
    """Return a text, a number or a list of these as SQL."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "'" + str(value).replace("'", "''") + "'"
    return f"'{value!r}'::DOUBLE" if isinstance(value, float) else repr(value)


def paths(files: Sequence[Path]) -> str:
    # What stands for several files in a pattern stands for itself in brackets.
    return literal([re.sub(r"([*?\[])", r"[\1]", str(path)) for path in files])


def numbered(count: int) -> str:
    return ", ".join(f"c{number}" for number in range(count))


def parquet(files: Sequence[Path], columns: int) -> str:
    return f"read_parquet({paths(files)}, hive_partitioning=false) AS t({numbered(columns)})"


def text_lines(files: Sequence[Path], columns: int, delimiter: str, header: bool, quoted: bool = True) -> str:
    names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(columns))
    quote = "'\"'" if quoted else "''"
    return (
        f"read_csv({paths(files)}, auto_detect=false, columns={{{names}}}, header={str(header).lower()}, "
        f"delim={literal(delimiter)}, quote={quote}, escape={quote}, nullstr='', max_line_size={LINE_BYTES}, "
        f"hive_partitioning=false, null_padding=false, "
        f"strict_mode={str(quoted).lower()}, store_rejects={str(quoted).lower()})"
    )


def csv_schema(file: Path, delimiter: str, header: bool) -> Any:
    """Return the columns of a file of texts, with the types that its first rows seem to have."""
    lines = f"read_csv({paths([file])}, delim={literal(delimiter)}, header={header}, hive_partitioning=false)"
    with duckdb().connect(config=SAFE) as connection:
        return connection.sql(f"SELECT * FROM {lines} LIMIT 0").to_arrow_table().schema


def json_lines(file: Path, columns: int = 0) -> str:
    alias = f" AS t({numbered(columns)})" if columns else ""
    return (
        f"read_json({paths([file])}, format='newline_delimited', records='true', sample_size=-1, "
        f"hive_partitioning=false){alias}"
    )


def json_schema(file: Path) -> Any:
    """Return the columns that some line has, with the types of all lines."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as lines:
        if not any(map(bytes.strip, lines)):
            raise ValueError("it has no lines")
    with duckdb().connect(config=SAFE) as connection:
        found = connection.execute(f"SELECT * FROM {json_lines(file)} LIMIT 0").description
    return arrow().schema([(name, json_type(str(kind))) for name, kind, *_ in found])


def json_type(kind: str) -> Any:
    pa = arrow()
    if kind.endswith("[]"):
        return pa.list_(json_type(kind.removesuffix("[]")))
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return pa.timestamp("s")
    names = {"BOOLEAN": pa.bool_(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64()}
    names["HUGEINT"] = pa.int64()  # of numbers that may be below zero, or large
    names |= dict.fromkeys(("VARCHAR", "TIME", "UUID"), pa.string()) | {'"NULL"': pa.null()}
    # Values of several kinds, which no type holds, are JSON.
    return names.get(kind, pa.binary())


def sql_type(arrow_type: Any) -> str:
    """Return the type of a column of plain values; dates and times are integers."""
    types = arrow().types
    if is_list(arrow_type):
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
    """Return what makes plain values of a column of Parquet or NDJSON, whose type in Arrow is given."""
    types = arrow().types
    if types.is_null(arrow_type):
        return "NULL::VARCHAR"
    if types.is_duration(arrow_type) or not types.is_temporal(arrow_type):
        return f"{column}::{sql_type(arrow_type)}"
    if types.is_date(arrow_type):
        return f"({column}::DATE - DATE '1970-01-01')::BIGINT"
    unit = arrow_type.unit
    if types.is_timestamp(arrow_type):
        return f"epoch_ms({column}) // 1000" if unit == "s" else f"epoch_{unit}({column})"
    return f"epoch_ns({column}) // {10 ** {'s': 9, 'ms': 6, 'us': 3, 'ns': 0}[unit]}"


def text_kinds() -> list[tuple[Any, str, str]]:
    """Return the types that texts may have, what those of a type look like, and what makes values of them."""
    pa = arrow()
    return [
        (pa.float64(), "", "{}::DOUBLE"),
        (pa.bool_(), "true|True|TRUE|false|False|FALSE", "{}::BOOLEAN"),
        (pa.date32(), DATE, plain("{}::DATE", pa.date32())),
        (pa.time32("s"), CLOCK, plain("{}::TIME", pa.time32("s"))),
        (pa.timestamp("s"), STAMP, plain("{}::TIMESTAMP", pa.timestamp("s"))),
        (pa.timestamp("ns"), rf"{STAMP}\.\d+", "epoch_ns({}::TIMESTAMP_NS)"),
        (pa.timestamp("s", "UTC"), rf"{STAMP}{ZONE}", plain("{}::TIMESTAMPTZ", pa.timestamp("s"))),
        (pa.timestamp("ns", "UTC"), rf"{STAMP}\.\d+{ZONE}", "epoch_ns({}::TIMESTAMPTZ)"),
    ]


def is_missing(column: str) -> str:
    return f"coalesce({column} IN {literal(MISSING_TEXTS)}, true)".replace("[", "(").replace("]", ")")


def is_integer(column: str) -> str:
    """Tell of a text whether it is written as integers are: not as 007, +7 or 1e3."""
    return f"(TRY_CAST({column} AS BIGINT)::VARCHAR = {column})"


def kind_of(column: str, is_id: bool) -> str:
    """Return a number for what a text may be: 1 for an integer, 2 for another text, and a bit for each other kind."""
    nothing = is_missing(column)
    if is_id:
        return f"CASE WHEN {nothing} THEN 0 WHEN {is_integer(column)} THEN 1 ELSE 2 END"
    cases = [f"WHEN {nothing} AND lower({column}) <> 'nan' THEN 0", f"WHEN {column} IS NULL THEN 0"]
    cases.append(f"WHEN {is_integer(column)} THEN 1")
    cases.append(f"WHEN NOT contains('0123456789+-.tTfFnNiI', {column}[1]) THEN 2")  # of most texts, this says enough
    cases.append(f"WHEN regexp_full_match({column}, '[+-]?\\d+') AND {parse_integer(column)} IS NOT NULL THEN 1")
    for bit, (_, looks, value) in enumerate(text_kinds(), 2):
        cases.append(f"WHEN {looks_like(column, looks)}TRY({value.format(column)}) IS NOT NULL THEN {1 << bit}")
    return f"CASE {' '.join(cases)} ELSE 2 END"


def looks_like(column: str, looks: str) -> str:
    return f"regexp_full_match({column}, {literal(looks)}) AND " if looks else ""


def parse_integer(column: str) -> str:
    return (
        f"CASE WHEN {is_integer(column)} THEN TRY_CAST({column} AS BIGINT) "
        f"WHEN regexp_full_match({column}, '[+-]?\\d+') THEN TRY_CAST(ltrim({column}, '+') AS BIGINT) END"
    )


def type_of_kinds(kinds: int) -> Any:
    """Return the type of texts of which `kind_of` tells the kinds."""
    pa = arrow()
    types = [arrow_type for bit, (arrow_type, _, _) in enumerate(text_kinds(), 2) if kinds >> bit & 1]
    numbers = ([pa.int64()] if kinds & 1 else []) + types
    if kinds & 2:
        return pa.string()
    if len(numbers) < 2:
        return numbers[0] if numbers else pa.null()
    if set(numbers) == {pa.int64(), pa.float64()}:
        return pa.float64()
    # Dates are times at midnight, and fractions of a second make all of a column finer.
    stamps = {str(one) for one in numbers} - {"date32[day]"}
    for zone in ("", ", tz=UTC"):
        if stamps <= {f"timestamp[s{zone}]", f"timestamp[ns{zone}]"}:
            return pa.timestamp("ns" if f"timestamp[ns{zone}]" in stamps else "s", "UTC" if zone else None)
    return pa.string()


def parse(column: str, arrow_type: Any) -> str:
    """Return what makes values of a column's texts, and NULL of those that are of another type."""
    if arrow_type == arrow().int64():
        return f"({parse_integer(column)})"
    for known, looks, value in text_kinds():
        if known == arrow_type:
            if arrow().types.is_timestamp(known):  # dates and whole seconds may stand among them
                looks = rf"{DATE}([ T]{CLOCK}(\.\d+)?{ZONE}?)?"
            return f"CASE WHEN {looks_like(column, looks)}true THEN TRY({value.format(column)}) END"
    return column
