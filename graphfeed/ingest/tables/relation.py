"""The tables of an entry as one relation of the engine, whose rows are in the order of the tables."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import groupby
from operator import and_, itemgetter
from typing import Any, TypeAlias

from graphfeed.ingest.tables.arrow_types import arrow, is_id, is_text, item_type, wider_type
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.scans import (
    FILE_ROWS,
    OF_ROLES,
    STRICT,
    json_lines,
    literal,
    parquet,
    paths,
    plain,
    sql_type,
    strictly,
    text_lines,
    type_of_texts,
    types_of,
)
from graphfeed.ingest.tables.table import COMMENTS, CSV, EDGE_LISTS, NDJSON, PARQUET, TEXTS, TableSource, naming
from graphfeed.ingest.tables.text_rows import check_row_count, recount_rows
from graphfeed.ops.arguments import brief

MANY_FILES, SMALL_BYTES = 1000, 1 << 16
FIRST_ROWS = 100
"""Number of rows of a CSV file whose types the other rows are expected to have."""
NO_REJECTS = "DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans"
WIDTH_REASON = "a line with too few or too many values"

Key: TypeAlias = tuple[str, bool]
"""A column, and whether it is read as ids."""

OnWidth = Callable[[TableSource, int, str], None]
"""Called with a table, the number of lines with too few or too many values, and a description of the first one."""


@dataclass(frozen=True)
class TableColumn:
    """A column over all tables of an entry."""

    name: str
    sql: str
    type: Any
    """Arrow type."""
    raw: bool
    """Whether it is read as strings that have to be parsed."""
    table: str
    """The first table, for error messages."""
    mixed: bool = False
    """Whether the type is a float type, but some tables have integers."""
    text: str | None = None
    """SQL for the string that was converted to the value."""

    @property
    def shown(self) -> str:
        """SQL for the value in a message."""
        return self.text or self.sql


@dataclass(frozen=True)
class Relation:
    """Rows with an increasing number `n`, and the columns of an entry."""

    sql: str
    sources: Sequence[TableSource]
    columns: Mapping[Key, TableColumn]
    firsts: Sequence[tuple[int, int]]
    """The number of the first row of each table, even if it has no rows, and the table's index, in ascending order."""
    count: Callable[[], int]

    @cached_property
    def num_rows(self) -> int:
        """Number of rows. Counting takes a quarter of the time of reading for thousands of files."""
        return self.count()

    def place(self, n: int) -> tuple[TableSource, int]:
        """Return the table of a row, and the row's position in it."""
        first, file = self.firsts[bisect_right(self.firsts, n, key=itemgetter(0)) - 1]
        return self.sources[file], n - first

    def by_table(self, engine: Engine, rows: str) -> list[tuple[int, int, int]]:
        """Return the code, the first row and the count of rows, grouped by table and code."""
        firsts = ", ".join(str(first) for first, _ in self.firsts)
        places = f"SELECT code, n, list_last(list_filter([{firsts}], lambda first: first <= n)) AS first FROM {rows}"
        return engine.rows(f"SELECT code, min(n), count(*) FROM ({places}) GROUP BY first, code ORDER BY 2")


def load_relation(
    engine: Engine, name: str, sources: Sequence[TableSource], roles: Mapping[Key, str], on_width: OnWidth
) -> Relation:
    """Return the relation of some tables. They are copied to the engine's file, except Parquet with equal columns."""
    # The role of a column defines how it is read: "id", "number", "integer" or "any".
    for source in sources:
        source.connection = engine.connection
    # Threads that read small files wait for each other: 2.4 instead of 1.7 s of CPU time for 10,000 files of 1 KB.
    small = len(sources) >= MANY_FILES and sources[0].is_file and os.stat(sources[0].name).st_size < SMALL_BYTES
    engine.run(f"SET threads = {1 if small else engine.threads}")
    share_schemas(engine, sources)
    shared = {
        (id(source.schema if source.suffix in PARQUET else source), *source.keys): source
        for source in reversed(sources)
    }
    for source in reversed(shared.values()):
        check_table_columns(source, roles)
    numbers = {column: f"c{number}" for number, column in enumerate(roles)}
    raw, strict = any(source.suffix in TEXTS for source in sources), dict[Key, Any]()
    if len(shared) == 1 and sources[0].suffix in PARQUET:
        columns = [
            f"{plain(place(sources, column), sources[0].type_of(*column))} AS {number}"
            for column, number in numbers.items()
        ]
        row = f"(file_index::BIGINT << {FILE_ROWS}) + file_row_number AS n"
        selected = ", ".join([row, "file_index::INTEGER AS file", *columns])
        sql = f"(SELECT {selected} FROM {scan(sources)})"
        types = common_types(sources[:1], roles)
        firsts = [(file << FILE_ROWS, file) for file in range(len(sources))]
        files = paths([source.source for source in sources])
        query = f"SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({files})"
    else:
        # If any table has strings only, all values are read as strings.
        types = {} if raw else common_types(sources, roles)
        # The table is read twice and dropped, and compressing strings takes longer than reading them.
        engine.run("SET force_compression = 'uncompressed'")
        create_table(engine, name, [sql_type(types.get(column, arrow().string())) for column in roles])
        for group in groups(sources):
            first = sources.index(group[0])
            if group[0].suffix in CSV:
                strict = insert_csv(engine, name, group, first, roles, on_width, alone=len(group) == len(sources))
            elif group[0].suffix in EDGE_LISTS:
                insert_edge_list(engine, name, group[0], first, list(roles), on_width)
            else:
                insert(engine, name, group[0], first, list(roles))
        if raw:
            find_types(engine, name, sources, roles, strict)
            types = common_types(sources, roles)
        engine.run("RESET force_compression")
        sql = f"(SELECT rowid AS n, * FROM {name})"
        rows = engine.rows(f"SELECT min(n) AS first, file FROM {sql} GROUP BY file ORDER BY first")
        firsts, query = [(first, file) for first, file in rows], f"SELECT count(*) FROM {name}"
    mixed, null = mixed_columns(types, shared.values()), arrow().null()
    columns_read = {
        column: TableColumn(column[0], number, types.get(column, null), raw, sources[0].name, column in mixed)
        for column, number in numbers.items()
    }
    for column, arrow_type in strict.items():
        own = numbers[column]
        columns_read[column] = replace(
            columns_read[column], sql=f"({plain(own, arrow_type)})", raw=False, text=f"{own}::VARCHAR"
        )
    return Relation(sql, sources, columns_read, firsts, lambda: int(engine.rows(query)[0][0]))


def common_types(sources: Sequence[TableSource], columns: Iterable[Key]) -> dict[Key, Any]:
    """Return the Arrow type of each column over all tables: the widest if there are several number types."""
    types: dict[Key, tuple[Any, TableSource]] = {}
    columns = list(columns)
    for source in sources:
        for column in columns:
            arrow_type = source.type_of(*column)
            if arrow().types.is_null(arrow_type):
                continue
            known, first = types.get(column, (arrow_type, source))
            wider = wider_type(known, arrow_type)
            if column[1] and is_text(known) != is_text(arrow_type) and all(map(is_id, (known, arrow_type))):
                wider = arrow().string()  # integer ids become strings next to strings
            if wider is None:
                raise TypeError(
                    f"{source.name}: {column[0]} is {arrow_type}, but it is {known} in {first.name}; "
                    "save the column with one type in all files"
                )
            types[column] = wider, first
    return {column: arrow_type for column, (arrow_type, _) in types.items()}


class NoColumn(ValueError):
    """A table lacks a column that has to be read."""

    def __init__(self, text: str, column: str) -> None:
        super().__init__(text)
        self.column = column


def mixed_columns(types: Mapping[Key, Any], sources: Iterable[TableSource]) -> set[Key]:
    """Return the columns of floats that have integers in some tables."""
    kinds = {column: [item_type(source.type_of(*column)) for source in sources] for column in types}
    is_integer, is_floating = arrow().types.is_integer, arrow().types.is_floating
    return {
        column for column, own in kinds.items() if is_floating(item_type(types[column])) and any(map(is_integer, own))
    }


def check_table_columns(source: TableSource, columns: Iterable[Key]) -> None:
    """Raise unless a table has the given columns, with types that can be read."""
    for name, _ in columns:
        if name not in source.names:
            raise NoColumn(f"{source.name} has no column {brief(name)}; it has {brief(source.names)}", name)
        if source.suffix not in TEXTS and sql_type(source.type_of(name)) == "BLOB":
            kind = "several kinds" if source.suffix in NDJSON else source.type_of(name)
            raise TypeError(f"{source.name}: {name} has values of {kind}; save numbers, strings, or vectors of numbers")


def share_schemas(engine: Engine, sources: Sequence[TableSource]) -> None:
    """Share the schema of the first of several Parquet files with the same columns."""
    names = [source.source for source in sources if source.suffix in PARQUET]
    files = {str(source.source): source for source in sources}
    if not names:
        return
    fields = "(name, type, converted_type, logical_type, repetition_type)"
    known: dict[str, Any] = {}
    with naming(sources):
        columns = f"SELECT file_name, list({fields} ORDER BY column_id)[2:]::VARCHAR AS columns"
        for file, found in engine.rows(
            f"{columns} FROM parquet_schema({paths(list(dict.fromkeys(names)))}) GROUP BY file_name"
        ):
            files[file].schema = known.setdefault(found, None) or files[file].schema
            known[found] = files[file].schema


def groups(sources: Sequence[TableSource]) -> Iterator[list[TableSource]]:
    """Yield tables that one statement can read: successive CSV files with the same columns and header lines."""

    def key(source: TableSource) -> Any:
        return (source.suffix, source.source.suffix, source.head, *source.names) if source.suffix in CSV else id(source)

    return (list(group) for _, group in groupby(sources, key))


def place(sources: Sequence[TableSource], column: Key, number: str = "file_index") -> str:
    """Return SQL for a column of tables with the same columns, or for its value from the folder's name."""
    name, known = column[0], sources[0].columns
    if name in known:
        return f"c{known.index(name)}"
    return f"({literal([source.keys[name] for source in sources])})[{number}::BIGINT + 1]"


def scan(sources: Sequence[TableSource]) -> str:
    return parquet([source.source for source in sources], len(sources[0].columns))


def insert(engine: Engine, name: str, source: TableSource, file: int, columns: list[Key]) -> None:
    """Append a table with typed columns."""
    if source.suffix in (*PARQUET, *NDJSON):
        read = scan([source]) if source.suffix in PARQUET else json_lines(source.source, len(source.columns))
        values = [plain(place([source], column, "0"), source.type_of(*column)) for column in columns]
        with naming([source]):
            engine.run(f"INSERT INTO {name} SELECT {', '.join([str(file), *values])} FROM {read}")
        return
    names = [column for column, _ in columns]
    for batch in source.batches(list(dict.fromkeys(names))):
        with naming([source]):
            engine.insert(name, file, [batch.column(column) for column in names])


def create_table(engine: Engine, name: str, kinds: Sequence[str]) -> None:
    columns = [f"c{number} {kind}" for number, kind in enumerate(kinds)]
    engine.run(f"CREATE OR REPLACE TABLE {name} ({', '.join(['file INTEGER', *columns])})")


def insert_strictly(
    engine: Engine, name: str, lines: str, values: Mapping[Key, str], roles: Mapping[Key, str]
) -> dict[Key, Any]:
    """Append lines with the types of the first ones if all lines have these, and return the types; or append nothing.

    To convert values while they are read takes a third of the time of keeping strings and parsing them later.
    """
    bits = [types_of(value, roles[column] == "id") for column, value in values.items()]
    found = ", ".join(f"if(min({own}) > 0, bit_and({own}), 0)" for own in bits)  # 0 if any value is missing
    try:
        (known,) = engine.rows(f"SELECT {found} FROM (SELECT * FROM {lines} LIMIT {FIRST_ROWS})")
        engine.run(NO_REJECTS)
        types = {column: type_of_texts(own) for column, own in zip(values, known, strict=True) if own}
        types = {column: kind for column, kind in types.items() if str(kind) in OF_ROLES[roles[column]]}
        if types:
            kinds = [STRICT[str(types[column])] if column in types else "VARCHAR" for column in roles]
            create_table(engine, name, kinds)
            chosen = [strictly(value, types[key]) if key in types else value for key, value in values.items()]
            engine.run(f"INSERT INTO {name} SELECT {', '.join(['file_index', *chosen])} FROM {lines}")
        return types
    except ValueError:  # some row has another type, or can't be read
        create_table(engine, name, ["VARCHAR"] * len(roles))
        engine.run(NO_REJECTS)
        return {}


def insert_csv(
    engine: Engine,
    name: str,
    group: Sequence[TableSource],
    first: int,
    roles: Mapping[Key, str],
    on_width: OnWidth,
    alone: bool,
) -> dict[Key, Any]:
    """Append CSV files, and return the types of the columns that are not kept as strings, if there are no others."""
    source, delimiter = group[0], CSV[group[0].suffix]
    names, head = source.columns, source.head
    lines = text_lines([own.source for own in group], len(names), delimiter, head)
    values = {column: place(group, column) for column in roles}
    strict = (
        insert_strictly(engine, name, lines, values, roles)
        if alone and {column for column, _ in roles} <= set(names)
        else {}
    )
    with naming(group):
        try:
            if not strict:
                selected = ", ".join([f"file_index + {first}", *values.values()])
                engine.run(f"INSERT INTO {name} SELECT {selected} FROM {lines}")
        except ValueError as error:
            for own in group if "state machine" in str(error) else ():  # an error that lacks the file and the line
                recount_rows(own.source, delimiter, len(names) == 1)
            raise
    rejected = engine.rows(
        "SELECT file_id, error_type::VARCHAR, line, csv_line, error_message FROM reject_errors ORDER BY file_id, line"
    )
    engine.run(NO_REJECTS)
    counts = dict(engine.rows(f"SELECT file, count(*) FROM {name} WHERE file >= {first} GROUP BY file"))
    for number, lines_of_file in groupby(rejected, itemgetter(0)):
        found, own = list(lines_of_file), group[number]
        other = next((wrong for wrong in found if wrong[1] not in {"TOO MANY COLUMNS", "MISSING COLUMNS"}), None)
        if other is not None:
            with naming([own]):
                recount_rows(own.source, delimiter, len(names) == 1)
                _, _, line, text, message = other
                raise ValueError(f"line {line}: {brief(text)}: {message}")
        _, _, line, text, _ = found[0]
        text = text.strip("\r\n")  # the engine includes empty lines before a row in the row
        counts[first + number] = counts.get(first + number, 0) + len(found)
        wrong = f"row {line - 1 - head} has {len(own.split(text))} values instead of {len(names)}: {brief(text)}"
        on_width(own, len(found), wrong)
    for number, own in enumerate(group, first):
        with naming([own]):
            before = head if len(names) == 1 else int(head > 0)  # empty lines are rows only if there is one column
            check_row_count(own.source, counts.get(number, 0) + before, delimiter, len(names) == 1)
    return strict


def insert_edge_list(
    engine: Engine, name: str, source: TableSource, file: int, columns: list[Key], on_width: OnWidth
) -> None:
    """Append a list of edges, whose values are separated by blanks or tabs."""
    lines = text_lines([source.source], 1, "\x01", quoted=False)
    marks = " OR ".join(f"starts_with(line, {literal(mark)})" for mark in COMMENTS)
    trimmed = f"SELECT trim(c0, '\r\n') <> '' AS has_text, trim(c0, ' \t\r\n') AS line FROM {lines}"
    parts = "regexp_split_to_array(line, '[ \t]+') AS parts"
    every = f"SELECT {parts}, has_text, line, line <> '' AND NOT ({marks}) AS is_row FROM ({trimmed})"
    width = len(source.columns)
    own = ", ".join(f"parts[{1 + number}] AS c{number}" for number in range(width))
    values = ", ".join(place([source], column, "0") for column in columns)
    with naming([source]):
        rows = f"SELECT {own} FROM ({every}) WHERE is_row AND len(parts) = {width}"
        engine.run(f"INSERT INTO {name} SELECT {file}, {values} FROM ({rows})")
        wrong = f"FILTER (is_row AND len(parts) <> {width})"
        found = f"count(*) FILTER (has_text), count(*) {wrong}, first(line) {wrong}, first(len(parts)) {wrong}"
        ((lines_read, count, line, values_of_line),) = engine.rows(f"SELECT {found} FROM ({every})")
        check_row_count(source.source, lines_read, None, False)
    if count:
        on_width(source, count, f"a line has {values_of_line} values instead of {width}: {brief(line)}")


def find_types(
    engine: Engine, name: str, sources: Sequence[TableSource], roles: Mapping[Key, str], strict: Mapping[Key, Any]
) -> None:
    """Set the types of the columns of strings, from all of their values, except those that are known."""
    found = []
    left = {column: f"c{number}" for number, column in enumerate(roles) if column not in strict}
    for column, number in left.items():
        role, bits = roles[column], types_of(number, roles[column] == "id")
        # A string or a fraction among numbers makes the row invalid rather than the column a string, except for "any".
        some = f"bit_and(nullif({bits}, 0))" if role in ("number", "integer") else "NULL"
        whole = f"bit_and(nullif({bits} & ~2, 0))" if role == "integer" else "NULL"
        found.append(f"coalesce({whole}, {some}, bit_and({bits}))")
    rows = engine.rows(f"SELECT file, {', '.join(found)} FROM {name} GROUP BY file") if left else []
    known = {file: own for file, *own in rows}
    nothing = [-1] * len(left)
    # A single id that is a string makes the ids of all tables strings.
    every = [reduce(and_, bits) for bits in zip(nothing, *known.values(), strict=True)]
    for file, source in enumerate(sources):
        source.found |= strict
        for column, own, of_all in zip(left, known.get(file, nothing), every, strict=True):
            source.found[column] = type_of_texts(of_all if roles[column] == "id" else own)
