"""The types that columns have over all tables of an entry, and of all times of a data set; what differs is refused."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from graphfeed.ingest.build.spec import NodeTable, Table
from graphfeed.ingest.tables.arrow_types import arrow, wider_type
from graphfeed.ingest.tables.table import TableSource

Key: TypeAlias = tuple[str, bool]
"""A column, and whether it is read as ids."""


def common_types(sources: Sequence[TableSource], columns: Iterable[Key]) -> dict[Key, Any]:
    """Return the Arrow type that each column has over all tables: the widest, if numbers have several."""
    types: dict[Key, tuple[Any, TableSource]] = {}
    columns = list(columns)
    for source in sources:
        for column in columns:
            arrow_type = source.type_of(*column)
            if arrow().types.is_null(arrow_type):
                continue
            known, first = types.get(column, (arrow_type, source))
            wider = wider_type(known, arrow_type)
            if wider is None:
                raise TypeError(
                    f"{source.name}: {column[0]} is {arrow_type}, but it is {known} in {first.name}; "
                    "save the column with one type in all files"
                )
            types[column] = wider, first
    return {column: arrow_type for column, (arrow_type, _) in types.items()}


def refuse_numbers_that_are_columns(name: str, table: Table, sources: Sequence[TableSource]) -> None:
    """Raise if a weight or a time is a whole number that might as well be the name of a column."""
    for key in ["time"] if isinstance(table, NodeTable) else ["weight", "time"]:
        value = getattr(table, key)
        if not isinstance(value, int):
            continue
        for source in sources:
            if str(value) in source.names:
                raise ValueError(
                    f"{name}: {key} is {value}, which may be a number for all rows or the column {value} of "
                    f"{source.name}; write '{value}' in quotes for the column, or {float(value)} for the number"
                )
