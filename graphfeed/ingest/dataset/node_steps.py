"""Conversion of tables to nodes: their ids, features, labels, splits and times."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.inputs import roles_of
from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.dataset.spec import NodeTable
from graphfeed.ingest.dataset.values import Check, ids, rule
from graphfeed.ingest.queries import entries
from graphfeed.ingest.queries.numbers import MOST_INT64
from graphfeed.ingest.tables.arrow_types import arrow, is_text
from graphfeed.ingest.tables.engine import Engine, as_numpy
from graphfeed.ingest.tables.relation import Relation, TableColumn
from graphfeed.ingest.tables.table import TableSource
from graphfeed.ops.arguments import brief
from graphfeed.ops.process import ProgressBar
from graphfeed.storage.datasets import DatasetWriter
from graphfeed.storage.memory import check_nodes_fit


def ingest_nodes(rows: Query, number: int, node_type: str | None) -> dict[str, Any]:
    """Write the nodes of a type, and return their description."""
    prefix, table, relation, engine = f"node_{number}", rows.table, rows.relation, rows.engine
    assert isinstance(table, NodeTable)
    own, name = None, table.names if table.id is None else table.id
    if name is not None:
        column = relation.columns[name, True]
        own = ids(column, read_as_strings(engine, relation, column))
        if table.id is not None:
            rows.checks.insert(0, duplicate_ids(engine, relation, column, own.sql))
        rows.checks = [*own.checks, *rows.checks]
    rows.read_time(f"nodes {node_type or ''}")
    dropped = rows.find_bad()
    if len(dropped) and table.id is None:
        source, row = relation.place(int(dropped[0]))
        raise ValueError(
            f"{source.name}, row {row} can't be skipped, because edges name these nodes by row; correct it, or name a "
            "column of ids"
        )
    if len(dropped):
        engine.run(entries.create_skipped(number, relation.sql))
    kept = entries.without_bad(relation.sql) if len(dropped) else relation.sql
    described = write_nodes(rows, prefix, kept, dropped)
    named: dict[str, Any] = {"ids": None, "texts": False, "skipped": len(dropped) > 0}
    if own is not None:
        engine.run(entries.create_column(f"ids_{number}", "id", own.sql, kept))
        found = write_table_ids(engine, rows.writer, number, "names" if table.id is None else "ids")
        named |= {"names": found["ids"]} if table.id is None else found
        if table.id is not None and relation.rest is not None:
            engine.run(entries.create_column(f"left_out_{number}", "id", own.sql, relation.rest))
            named["left_out"] = True
    if rows.time is not None:
        engine.run(entries.create_column(f"times_{number}", "time", f"({rows.time.sql})::BIGINT", kept))
    engine.run(entries.drop_rows(f"rows_{prefix}"))
    return described | named | {"problems": rows.bad.as_list(), "time": rows.time_type}


def duplicate_ids(engine: Engine, relation: Relation, column: TableColumn, sql: str) -> Check:
    """Return the rule that no earlier row has the same id."""
    engine.run(entries.create_repeated(sql, relation.sql))
    return rule(column, entries.IS_REPEATED, "which an earlier row already has")


def write_nodes(rows: Query, prefix: str, kept: str, dropped: NDArray[np.int64]) -> dict[str, Any]:
    """Write the features and the items of the nodes that are kept, and return their description."""
    time, count = rows.time.sql if rows.time is not None else rows.table.time, rows.relation.num_rows - len(dropped)
    columns = rows.of_items | ({} if time is None else {"timestamp": f"({time})::BIGINT"})
    with rows.writer.rows(f"{prefix}_") as arrays:
        features = rows.write_features(arrays, dropped)
        items = rows.write_items(arrays, kept, count, columns)
        return items | {"features": features, "count": count, "categories": rows.categories}


def collect_nodes(
    engine: Engine,
    writer: DatasetWriter,
    number: int,
    ends: Sequence[tuple[Relation, TableColumn]],
    bar: ProgressBar,
) -> dict[str, Any]:
    """Number the ids in columns of edges in ascending order, and return a description of these nodes."""
    texts = any(read_as_strings(engine, relation, column) for relation, column in ends)
    columns = [(ids(column, texts).sql, relation.sql) for relation, column in ends]
    engine.run(entries.create_distinct_ids(f"ids_{number}", columns))
    found = write_table_ids(engine, writer, number, "ids")
    ((count,),) = engine.rows(entries.count_all(f"ids_{number}"))
    bar.total = count
    bar.update(count)
    return found | {"count": count, "features": {}, "items": {}, "classes": None, "num_classes": 0, "problems": []}


def read_as_strings(engine: Engine, relation: Relation, column: TableColumn) -> bool:
    """Return whether ids are read as strings, because they are strings or unsigned integers beyond int64."""
    if not arrow().types.is_uint64(column.type):
        return is_text(column.type)
    ((found,),) = engine.rows(entries.is_any([f"{column.sql} > {MOST_INT64}"], relation.sql))
    return bool(found)


def write_table_ids(engine: Engine, writer: DatasetWriter, number: int, name: str) -> dict[str, Any]:
    """Write the ids of a type, unless they are 0, 1, 2, ...; return the files and whether the ids are strings."""
    table = f"ids_{number}"
    ((texts, same),) = engine.rows(entries.describe_ids(table))
    if same and not texts:
        return {"ids": None, "texts": False}
    names = {"values": f"{name}_{number}"} | ({"offsets": f"{name}_{number}_offsets"} if texts else {})
    end = 0
    with writer.rows("") as arrays:
        if texts:
            arrays.append(names["values"], np.zeros(0, dtype=np.uint8))
            arrays.append(names["offsets"], np.zeros(1, dtype=np.int64))
        for batch in engine.stream(entries.select(["id"], table)):
            if not texts:
                arrays.append(names["values"], as_numpy(batch.column(0)))
                continue
            _, offsets, data = batch.column(0).cast(arrow().large_string()).buffers()
            starts = np.frombuffer(offsets, dtype=np.int64)[: len(batch) + 1]
            arrays.append(names["values"], np.frombuffer(data or b"", dtype=np.uint8)[: starts[-1]])
            arrays.append(names["offsets"], starts[1:] + end)
            end += int(starts[-1])
    return {"ids": {key: f"{own}.npy" for key, own in names.items()}, "texts": texts}


def rows_of_arrays(table: NodeTable, given: Mapping[str, NDArray[Any]]) -> Relation:
    """Return a relation without columns for nodes that have arrays or a count, but no files."""
    lengths = {name: len(array) for name, array in given.items()}
    counts = {*lengths.values(), *([] if table.count is None else [table.count])}
    if len(counts) > 1:
        raise ValueError(f"the arrays of the nodes have {lengths} rows, and count is {table.count}")
    if roles_of(table):
        name = next(iter(roles_of(table)))
        raise ValueError(f"features: there is no column {brief(name)}, because the nodes have no files; name an array")
    count = counts.pop()
    check_nodes_fit("count", count)
    return Relation(
        entries.number_nodes(count), [TableSource(None, "the nodes without files")], {}, [(0, 0)], lambda: count
    )
