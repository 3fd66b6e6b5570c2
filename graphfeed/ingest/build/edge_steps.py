"""From tables to edges: their ends, weights and times in a table of the engine, and features and items in arrays."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.build.array_files import Arrays
from graphfeed.ingest.build.bad_rows import Problems, first_broken
from graphfeed.ingest.build.row_outputs import RowOutputs, open_references
from graphfeed.ingest.build.spec import EdgeTable
from graphfeed.ingest.build.table_rows import BAD, IntegerStream, Places, TableRows
from graphfeed.ingest.build.values import Check, ids, numbers
from graphfeed.ingest.tables.arrow_types import is_text
from graphfeed.ingest.tables.relation import Relation
from graphfeed.ingest.tables.scans import is_integer
from graphfeed.ops.process import ProgressBar

MOST_NARROW = 1 << 31
"""Below this, ids take four bytes."""


def read_edges(
    places: Places,
    number: int,
    edge_type: str | None,
    loaded: tuple[Relation, Problems],
    ends: Sequence[tuple[int, dict[str, Any]]],
    bar: ProgressBar,
) -> dict[str, Any]:
    """Read the edges of a type into a table, and return their description.

    Args:
        places: What they are read with.
        number: The number of the type.
        edge_type: The type.
        loaded: The rows, and which lines of texts were left out.
        ends: The number and the description of the node type of the sources, and of that of the destinations.
        bar: Counts rows.
    """
    table, name, engine = places.spec.edge_tables[edge_type], f"edges_{number}", places.engine
    relation, problems = loaded
    rows = TableRows(places, table, relation, open_references(table, places.spec.folder), problems, bar)
    columns, joins = read_ends(rows, table, ends)
    rows.checks += rows.plan.checks
    columns += read_weight(rows, table)
    rows.read_time(f"edges {edge_type or ''}")
    columns += [f"{rows.time.sql}::BIGINT AS time"] if rows.time is not None else []
    columns.append(f"{first_broken(rows.checks)} AS code")
    # A join keeps no order.
    found = f"SELECT n, {', '.join(columns)} FROM {relation.sql} {joins} {'ORDER BY n' if joins else ''}"
    engine.run(f"CREATE OR REPLACE TABLE {name} AS {found}")
    if table.time_sorted:
        refuse_earlier(rows, name, str(table.time))
    dropped = rows.find_bad(name)
    if len(dropped):
        kept = f"SELECT * FROM {name} WHERE n NOT IN (SELECT n FROM {BAD}) ORDER BY n"
        engine.run(f"CREATE OR REPLACE TABLE kept AS {kept}; DROP TABLE {name}; ALTER TABLE kept RENAME TO {name}")
    described = write_edges(rows, number, dropped)
    engine.run(f"DROP TABLE IF EXISTS rows_edge_{number}; CHECKPOINT")
    count = relation.num_rows - len(dropped)
    return described | {"count": count, "problems": problems.as_list(), "time": rows.time_type}


def read_ends(rows: TableRows, table: EdgeTable, ends: Sequence[tuple[int, dict[str, Any]]]) -> tuple[list[str], str]:
    """Return the numbers of sources and destinations as SQL, and the joins that find them."""
    columns, joins = [], []
    names = {"source": table.source, "destination": table.destination}
    for (end, name), (node, described) in zip(names.items(), ends, strict=True):
        column = rows.relation.columns[name, True]
        if not described["texts"] and column.raw and is_text(column.type):
            # If some of the texts are integers, the others are wrong rows.
            ((some,),) = rows.places.engine.rows(f"SELECT bool_or({is_integer(column.sql)}) FROM {rows.relation.sql}")
            if not some:
                raise TypeError(f"{column.table}: {name} has texts, but the ids of these nodes are integers")
        found, count = ids(column, described["texts"]), described["count"]
        if described["ids"] is None:
            place, reason = found.sql, f"which is out of range: there are {count} nodes, from 0"
            lost = f"({place} < 0 OR {place} >= {count})"
        else:
            place, reason = f"{end}_ids.rowid", "but no row of the nodes has that id"
            lost = f"{place} IS NULL"
            joins.append(f"LEFT JOIN ids_{node} AS {end}_ids ON {end}_ids.id = {found.sql}")
        rows.checks += [*found.checks, Check(lost, name, reason, column.sql)]
        columns.append(f"TRY_CAST({place} AS {'INTEGER' if count < MOST_NARROW else 'BIGINT'}) AS {end}")
    return columns, " ".join(joins)


def read_weight(rows: TableRows, table: EdgeTable) -> list[str]:
    """Return the weights as SQL, if they are a column."""
    if not isinstance(table.weight, str):
        return []
    column = rows.relation.columns[table.weight, False]
    found = numbers(column, "a number")
    float32 = f"TRY_CAST({found.sql} AS FLOAT)"
    wrong = f"NOT coalesce({float32} >= 0 AND isfinite({float32}), false)"
    rows.checks += [*found.checks, Check(wrong, table.weight, "but a weight must be a number from 0", column.sql)]
    return [f"{float32} AS weight"]


def refuse_earlier(rows: TableRows, name: str, column: str) -> None:
    """Mark rows whose times are earlier than in a row before, unless that one is wrong itself."""
    rows.checks.append(
        Check("false", column, "which is earlier than in a row before", rows.relation.columns[column, False].sql)
    )
    before = "max(time) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    earlier = f"SELECT n FROM (SELECT n, time, {before} AS latest FROM {name} WHERE code IS NULL) WHERE time < latest"
    rows.places.engine.run(f"UPDATE {name} SET code = {len(rows.checks) - 1} WHERE n IN ({earlier})")


def write_edges(rows: TableRows, number: int, dropped: NDArray[np.int64]) -> dict[str, Any]:
    """Write the features and the items of edges, and return their description."""
    plan, width = rows.plan, 2 if rows.time is None else 3
    ends = f"SELECT {', '.join(['source', 'destination', 'time'][:width])} FROM edges_{number}"
    stream = rows.places.engine.stream(ends)
    with Arrays(rows.places.output, f"edge_{number}_") as arrays, closing(stream):
        outputs = RowOutputs(rows.table, plan, rows.given, arrays)
        integers = IntegerStream(stream, width)
        for batch, own in rows.batches(dropped):
            items: dict[str, NDArray[Any]] = {}
            if plan.parts or plan.label is not None:
                source, destination, *times = integers.take(len(batch))
                items = {"seeds": np.stack([source, destination], axis=1)}
                items |= {"timestamp": times[0]} if times else {}
            outputs.write(batch, own, items)
        rows.note_unlabelled(outputs)
        return outputs.describe()
