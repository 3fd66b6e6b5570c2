"""The types that columns have over all tables of an entry, and of all times of a data set; what differs is refused."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphfeed.ingest.build.spec import NodeTable, Table
from graphfeed.ingest.tables.columns import is_list, is_text, value_type
from graphfeed.ingest.tables.table import CSV, TableSource, arrow


def common_types(sources: Sequence[TableSource], columns: Iterable[str]) -> dict[str, Any]:
    """Return the Arrow type that each column has over all tables: the widest, if numbers have several.

    Columns that a table lacks are left out; reading that table raises an error that names them.

    Raises:
        TypeError: A column holds, say, integers in one table and texts in another one. The error names both.
    """
    types: dict[str, tuple[Any, TableSource]] = {}
    for source in sources:
        schema = source.schema()
        for column in columns:
            if column not in schema.names:
                continue
            arrow_type = value_type(schema.field(column).type)
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


def wider_type(one: Any, other: Any) -> Any:
    """Return a type that holds the values of both, or None if no type does."""
    pa = arrow()
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if is_list(one) and is_list(other):
        inner = wider_type(one.value_type, other.value_type)
        return None if inner is None else pa.large_list(inner)
    if is_text(one) and is_text(other):
        return pa.large_string()
    if pa.types.is_temporal(one) and pa.types.is_temporal(other):
        return one if unit_of(one) == unit_of(other) else None
    if any(map(pa.types.is_floating, (one, other))) and all(map(is_plain_number, (one, other))):
        return pa.float64()
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        # Nothing holds all of int64 and uint64; values beyond int64 are refused by their rows.
        same_sign = pa.types.is_signed_integer(one) == pa.types.is_signed_integer(other)
        return (one if one.bit_width >= other.bit_width else other) if same_sign else pa.int64()
    return None


def is_plain_number(arrow_type: Any) -> bool:
    """Return whether a type is that of integers or floats."""
    return bool(arrow().types.is_integer(arrow_type) or arrow().types.is_floating(arrow_type))


def unit_of(arrow_type: Any) -> str | None:
    """Return the unit of the integers that dates or times become, or None for numbers.

    Times with a zone count from 1970 in UTC. Those without one count from 1970 somewhere, so the two don't mix.
    """
    types = arrow().types
    if not types.is_temporal(arrow_type):
        return None
    if types.is_timestamp(arrow_type):
        return arrow_type.unit if arrow_type.tz is None else f"{arrow_type.unit} in UTC"
    if types.is_date(arrow_type):
        return "day" if types.is_date32(arrow_type) else "ms"
    return f"{arrow_type.unit} of {'a duration' if types.is_duration(arrow_type) else 'a day'}"


def has_text_ids(ends: Iterable[tuple[TableSource, str]]) -> bool:
    """Return whether some columns hold ids that are texts. Dates and booleans in CSV files are texts, too."""
    types = arrow().types
    for source, column in ends:
        schema = source.schema()
        if column in schema.names:
            arrow_type = value_type(schema.field(column).type)
            if is_text(arrow_type) or (
                source.suffix in CSV and (types.is_temporal(arrow_type) or types.is_boolean(arrow_type))
            ):
                return True
    return False


def common_time_unit(
    tables: Mapping[str, Mapping[str | None, Table]], sources: Mapping[tuple[str, str | None], Sequence[TableSource]]
) -> str | None:
    """Return the unit of all columns of times, or None if they hold integers.

    Args:
        tables: The entries of "nodes" and of "edges" by type.
        sources: Their tables.

    Raises:
        TypeError: Times in several units, or times and integers.
        ValueError: A number that is given for all rows is the name of a column as well.
    """
    first: tuple[str, str, str | None] | None = None
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
