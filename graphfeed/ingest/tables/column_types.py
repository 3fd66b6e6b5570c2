"""The types that columns have over all tables of an entry, and of all times of a data set; what differs is refused."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphfeed.ingest.build.spec import NodeTable, Table
from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_plain_number, is_text, unit_of, wider_type
from graphfeed.ingest.tables.table import CSV, TableSource


def common_types(sources: Sequence[TableSource], columns: Iterable[str]) -> dict[str, Any]:
    """Return the Arrow type that each column has over all tables: the widest, if numbers have several."""
    types: dict[str, tuple[Any, TableSource]] = {}
    for source in sources:
        schema = source.schema()
        for column in columns:
            if column not in schema.names:
                continue  # reading that table raises an error that names the column
            arrow_type = schema.field(column).type
            if arrow().types.is_null(arrow_type):
                continue
            known, first = types.get(column, (arrow_type, source))
            wider = wider_type(known, arrow_type)
            if wider is None:
                raise TypeError(
                    f"{source.name}: {column} is {arrow_type}, but it is {known} in {first.name}; "
                    "save the column with one type in all files"
                )
            types[column] = wider, first
    return {column: arrow_type for column, (arrow_type, _) in types.items()}


def vector_lengths(sources: Sequence[TableSource], types: Mapping[str, Any]) -> dict[str, int]:
    """Return the length of the vectors of each column that has some: that of the first one."""
    lengths: dict[str, int] = {}
    for column in (column for column, arrow_type in types.items() if is_list(arrow_type)):
        for source in sources:
            length = first_length(source, column)  # reads up to the first vector
            if length is not None:
                lengths[column] = length
                break
    return lengths


def first_length(source: TableSource, column: str) -> int | None:
    """Return the length of the first vector of a table's column, or None if there is none."""
    schema = source.schema()
    if column not in schema.names or not is_list(schema.field(column).type):
        return None
    if arrow().types.is_fixed_size_list(schema.field(column).type):
        return int(schema.field(column).type.list_size)
    for rows in source.batches([column], 1 << 10):
        lengths = arrow("compute").list_value_length(rows.column(column)).drop_null()
        if len(lengths):
            return int(lengths[0].as_py())
    return None


def has_text_ids(ends: Iterable[tuple[TableSource, str]]) -> bool:
    """Return whether some columns hold ids that are texts."""
    types = arrow().types
    for source, column in ends:
        schema = source.schema()
        if column in schema.names:
            arrow_type = schema.field(column).type
            # Dates and booleans in CSV files are texts, too.
            if is_text(arrow_type) or (
                source.suffix in CSV and (types.is_temporal(arrow_type) or types.is_boolean(arrow_type))
            ):
                return True
    return False


def common_time_unit(
    tables: Mapping[str, Mapping[str | None, Table]], sources: Mapping[tuple[str, str | None], Sequence[TableSource]]
) -> str | None:
    """Return the unit of all columns of times, or None if they hold integers."""
    first: tuple[str, str, str | None] | None = None
    # Each key is "nodes" or "edges", each entry a type.
    for (key, entry), tables_of_entry in sources.items():
        name, table = f"{key} {entry or ''}".strip(), tables[key][entry]
        refuse_numbers_that_are_columns(name, table, tables_of_entry)
        column = getattr(table, "time", None)
        if not isinstance(column, str):
            continue
        arrow_type = common_types(tables_of_entry, [column]).get(column)
        if arrow_type is None or not (is_plain_number(arrow_type) or arrow().types.is_temporal(arrow_type)):
            continue  # refused by the row, with its value
        unit = unit_of(arrow_type)
        known, known_type, known_unit = first or (name, str(arrow_type), unit)
        if unit != known_unit:
            raise TypeError(
                f"the time of {name} is {arrow_type}, but that of {known} is {known_type}; save all times with one type"
            )
        first = known, known_type, known_unit
    return None if first is None else first[2]


def refuse_numbers_that_are_columns(name: str, table: Table, sources: Sequence[TableSource]) -> None:
    """Raise if a weight or a time is a whole number that might as well be the name of a column."""
    for key in ["time"] if isinstance(table, NodeTable) else ["weight", "time"]:
        value = getattr(table, key)
        if not isinstance(value, int):
            continue
        for source in sources:
            if str(value) in source.schema().names:
                raise ValueError(
                    f"{name}: {key} is {value}, which may be a number for all rows or the column {value} of "
                    f"{source.name}; write '{value}' in quotes for the column, or {float(value)} for the number"
                )
