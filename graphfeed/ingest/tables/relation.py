"""The tables of an entry as one relation of the engine, whose rows are in the order of the tables."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import groupby
from operator import and_, itemgetter
from typing import Any, TypeAlias

from graphfeed.ingest.queries import entries, files
from graphfeed.ingest.queries.columns import (
    OF_ROLES,
    STRICT,
    in_folder,
    plain,
    sql_type,
    strictly,
    type_of_texts,
    types_of,
)
from graphfeed.ingest.tables.arrow_types import arrow, is_id, is_text, item_type, wider_type
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.table import COMMENTS, CSV, EDGE_LISTS, NDJSON, PARQUET, TEXTS, TableSource, naming
from graphfeed.ingest.tables.text_rows import check_row_count, recount_rows
from graphfeed.ops.arguments import brief

MANY_FILES, SMALL_BYTES = 1000, 1 << 16
FIRST_ROWS = 100
"""Number of rows of a CSV file whose types the other rows are expected to have."""
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
    rest: str | None = None
    """SQL for the rows that were left out, if any could be."""

    @cached_property
    def num_rows(self) -> int:
        """Number of rows. Counting takes a quarter of the time of reading for thousands of files."""
        return self.count()

    def place(self, n: int) -> tuple[TableSource, int]:
        """Return the table of a row, and the row's position in it."""
        first, file = self.firsts[bisect_right(self.firsts, n, key=itemgetter(0)) - 1]
        return self.sources[file], n - first

    def filtered(self, engine: Engine, condition: str) -> "Relation":
        """Return the relation of the rows that fulfil a condition, which is never NULL."""
        sql = entries.filter_rows(self.sql, condition)
        rest = entries.filter_rows(self.sql, f"NOT ({condition})")
        return replace(self, sql=sql, rest=rest, count=lambda: int(engine.rows(entries.count_all(sql))[0][0]))

    def by_table(self, engine: Engine, rows: str) -> list[tuple[int, int, int]]:
        """Return the code, the first row and the count of rows, grouped by table and code."""
        return engine.rows(entries.count_codes(rows, [first for first, _ in self.firsts]))


@dataclass(frozen=True)
class LoadedRows:
    """The rows of the tables of an entry in the engine, with the columns `c0`, `c1`, ... in the order of the roles."""

    sql: str
    count: str
    """SQL for the number of rows."""
    firsts: Sequence[tuple[int, int]]
    """See `Relation`."""
    types: Mapping[Key, Any]
    """Arrow types of the columns that have values."""
    raw: bool = False
    """Whether columns are read as strings that have to be parsed."""
    strict: Mapping[Key, Any] = field(default_factory=dict)
    """Arrow types of the columns that were parsed already, although `raw`."""


def load_relation(
    engine: Engine, name: str, sources: Sequence[TableSource], roles: Mapping[Key, str], on_width: OnWidth
) -> Relation:
    """Return the relation of some tables. They are copied to the engine's file, except Parquet with equal columns.

    The role of a column defines how it is read: "id", "number", "weight", "integer" or "any".
    """
    for source in sources:
        source.connection = engine.connection
    # Threads that read small files wait for each other: 2.4 instead of 1.7 s of CPU time for 10,000 files of 1 KB.
    small = len(sources) >= MANY_FILES and sources[0].is_file and os.stat(sources[0].name).st_size < SMALL_BYTES
    engine.run(f"SET threads = {1 if small else engine.threads}")
    share_schemas(engine, sources)
    differing = first_of_each_schema(sources)
    for source in differing:
        check_table_columns(source, roles)
    if len(differing) == 1 and sources[0].suffix in PARQUET:
        rows = read_in_place(sources, roles)
    else:
        rows = copy_rows(engine, name, sources, roles, on_width)
    mixed = mixed_columns(rows.types, differing)
    columns = {
        column: column_of(column, f"c{number}", rows, sources[0].name, column in mixed)
        for number, column in enumerate(roles)
    }
    return Relation(rows.sql, sources, columns, rows.firsts, lambda: int(engine.rows(rows.count)[0][0]))


def first_of_each_schema(sources: Sequence[TableSource]) -> list[TableSource]:
    """Return the tables without the Parquet files that have the columns of an earlier one."""
    by_schema = {
        (id(source.schema if source.suffix in PARQUET else source), *source.keys): source
        for source in reversed(sources)
    }
    return list(by_schema.values())[::-1]


def read_in_place(sources: Sequence[TableSource], roles: Mapping[Key, str]) -> LoadedRows:
    """Return the rows of Parquet files with equal columns, which the engine reads where they are."""
    columns = {
        f"c{number}": plain(place(sources, column), sources[0].type_of(*column)) for number, column in enumerate(roles)
    }
    paths = [source.source for source in sources]
    return LoadedRows(
        files.numbered_parquet_rows(paths, len(sources[0].columns), columns),
        files.count_parquet_rows(paths),
        [(file << files.FILE_ROWS, file) for file in range(len(sources))],
        common_types(sources[:1], roles),
    )


def copy_rows(
    engine: Engine, name: str, sources: Sequence[TableSource], roles: Mapping[Key, str], on_width: OnWidth
) -> LoadedRows:
    """Copy the rows of tables to a table of the engine."""
    # If any table has strings only, all values are read as strings.
    raw, strict = any(source.suffix in TEXTS for source in sources), dict[Key, Any]()
    types = {} if raw else common_types(sources, roles)
    # The table is read twice and dropped, and compressing strings takes longer than reading them.
    engine.run("SET force_compression = 'uncompressed'")
    engine.run(entries.create_rows(name, [sql_type(types.get(column, arrow().string())) for column in roles]))
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
    sql = entries.number_rows(name)
    firsts = [(first, file) for first, file in engine.rows(entries.first_of_files(sql))]
    return LoadedRows(sql, entries.count_all(name), firsts, types, raw, strict)


def column_of(column: Key, sql: str, rows: LoadedRows, table: str, mixed: bool) -> TableColumn:
    name, arrow_type = column[0], rows.types.get(column, arrow().null())
    if column not in rows.strict:
        return TableColumn(name, sql, arrow_type, rows.raw, table, mixed)
    parsed = f"({plain(sql, rows.strict[column])})"
    return TableColumn(name, parsed, arrow_type, raw=False, table=table, mixed=mixed, text=f"{sql}::VARCHAR")


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
    if not names:
        return
    by_path, known = {str(source.source): source for source in sources}, dict[str, Any]()
    with naming(sources):
        for file, found in engine.rows(files.parquet_columns(list(dict.fromkeys(names)))):
            by_path[file].schema = known.setdefault(found, None) or by_path[file].schema
            known[found] = by_path[file].schema


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
    return in_folder([source.keys[name] for source in sources], number)


def insert(engine: Engine, name: str, source: TableSource, file: int, columns: list[Key]) -> None:
    """Append a table with typed columns."""
    if source.suffix in (*PARQUET, *NDJSON):
        width = len(source.columns)
        is_parquet = source.suffix in PARQUET
        read = files.parquet_rows([source.source], width) if is_parquet else files.json_rows(source.source, width)
        values = [plain(place([source], column, "0"), source.type_of(*column)) for column in columns]
        with naming([source]):
            engine.run(entries.insert_rows(name, str(file), values, read))
        return
    names = [column for column, _ in columns]
    for batch in source.batches(list(dict.fromkeys(names))):
        with naming([source]):
            engine.insert(name, file, [batch.column(column) for column in names])


def insert_strictly(
    engine: Engine, name: str, lines: str, values: Mapping[Key, str], roles: Mapping[Key, str]
) -> dict[Key, Any]:
    """Append lines with the types of the first ones if all lines have these, and return the types; or append nothing.

    To convert values while they are read takes a third of the time of keeping strings and parsing them later.
    """
    bits = [types_of(value, roles[column] == "id") for column, value in values.items()]
    try:
        (known,) = engine.rows(entries.types_of_first(lines, bits, FIRST_ROWS))
        engine.run(files.NO_REJECTS)
        types = {column: type_of_texts(own) for column, own in zip(values, known, strict=True) if own}
        types = {column: kind for column, kind in types.items() if str(kind) in OF_ROLES[roles[column]]}
        if types:
            kinds = [STRICT[str(types[column])] if column in types else "VARCHAR" for column in roles]
            engine.run(entries.create_rows(name, kinds))
            chosen = [
                strictly(value, types[key], roles[key]) if key in types else value for key, value in values.items()
            ]
            engine.run(entries.insert_rows(name, "file_index", chosen, lines))
        return types
    except ValueError:  # some row has another type, or can't be read
        engine.run(f"{files.NO_REJECTS}; {entries.create_rows(name, ['VARCHAR'] * len(roles))}")
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
    lines = files.text_lines([own.source for own in group], len(names), delimiter, head)
    values = {column: place(group, column) for column in roles}
    strict = (
        insert_strictly(engine, name, lines, values, roles)
        if alone and {column for column, _ in roles} <= set(names)
        else {}
    )
    with naming(group):
        try:
            if not strict:
                engine.run(entries.insert_rows(name, f"file_index + {first}", [*values.values()], lines))
        except ValueError as error:
            for own in group if "state machine" in str(error) else ():  # an error that lacks the file and the line
                recount_rows(own.source, delimiter, len(names) == 1)
            raise
    rejected = engine.rows(files.rejected_lines())
    engine.run(files.NO_REJECTS)
    counts = dict(engine.rows(entries.count_by_file(name, first)))
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
    lines, width = files.edge_list_lines(source.source, COMMENTS), len(source.columns)
    values = [place([source], column, "0") for column in columns]
    with naming([source]):
        engine.run(entries.insert_rows(name, str(file), values, files.edge_list_rows(lines, width)))
        ((lines_read, count, line, values_of_line),) = engine.rows(files.count_edge_list_lines(lines, width))
        check_row_count(source.source, lines_read, None, False)
    if count:
        on_width(source, count, f"a line has {values_of_line} values instead of {width}: {brief(line)}")


def find_types(
    engine: Engine, name: str, sources: Sequence[TableSource], roles: Mapping[Key, str], strict: Mapping[Key, Any]
) -> None:
    """Set the types of the columns of strings, from all of their values, except those that are known."""
    left = {column: f"c{number}" for number, column in enumerate(roles) if column not in strict}
    query = entries.types_by_file(name, {number: roles[column] for column, number in left.items()})
    rows = engine.rows(query) if left else []
    known = {file: own for file, *own in rows}
    nothing = [-1] * len(left)
    # A single id that is a string makes the ids of all tables strings.
    every = [reduce(and_, bits) for bits in zip(nothing, *known.values(), strict=True)]
    for file, source in enumerate(sources):
        source.found |= strict
        for column, own, of_all in zip(left, known.get(file, nothing), every, strict=True):
            source.found[column] = type_of_texts(of_all if roles[column] == "id" else own)
