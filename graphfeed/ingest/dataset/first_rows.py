"""The first rows of a table, from which a specification is guessed."""

from typing import Any

from graphfeed.ingest.queries.files import json_rows, typed_csv_rows
from graphfeed.ingest.tables.arrow_types import arrow, as_plain
from graphfeed.ingest.tables.engine import connect
from graphfeed.ingest.tables.table import CSV, EDGE_LISTS, NDJSON, PARQUET, TableSource, naming

COUNT = 10_000
"""Number of rows to look at."""


def first_rows(source: TableSource) -> Any:
    """Return the first rows of a table as an Arrow table, with the columns and types that ingest reads."""
    pa = arrow()
    with naming([source], Exception):
        if source.suffix in CSV:
            query = typed_csv_rows(source.source, CSV[source.suffix], source.head, COUNT)
            table = found_by(query).rename_columns(source.columns)
            return pa.table({name: whole_seconds(table[name]) for name in table.column_names})
        if source.suffix in EDGE_LISTS:
            return pa.table({name: pa.array([0], pa.int64()) for name in source.columns})
        if source.suffix in PARQUET:
            with arrow("parquet").ParquetFile(source.source) as file:
                if file.metadata.num_rows <= COUNT:
                    table = file.read()
                else:
                    table = pa.Table.from_batches([next(file.iter_batches(COUNT))], file.schema_arrow)
        elif source.suffix in NDJSON:
            return found_by(f"FROM {json_rows(source.source)} LIMIT {COUNT}")
        else:
            batch = next(source.batches(source.columns), None)
            table = source.schema.empty_table() if batch is None else batch.slice(0, COUNT)
        return pa.table({name: as_plain(table[name].combine_chunks()) for name in table.column_names})


def found_by(query: str) -> Any:
    """Return the result of a query of a file as an Arrow table."""
    with connect() as connection:
        return connection.sql(query).to_arrow_table()


def whole_seconds(values: Any) -> Any:
    """Convert times of text to the unit that ingest reads: seconds, or nanoseconds if there are fractions."""
    pa = arrow()
    if not pa.types.is_timestamp(values.type):
        return values
    try:
        return values.cast(pa.timestamp("s", values.type.tz))
    except pa.ArrowInvalid:
        return values.cast(pa.timestamp("ns", values.type.tz))


def has_distinct_values(column: Any) -> bool:
    """Return whether no value is missing, and no two are equal."""
    return column.null_count == 0 and len(column.unique()) == len(column)


def is_complete(column: Any) -> bool:
    """Return whether no value is missing or NaN."""
    compute, is_float = arrow("compute"), arrow().types.is_floating(column.type)
    return column.null_count == 0 and not (is_float and compute.any(compute.is_nan(column)).as_py())
