"""Conversion of tables to edges: endpoints, weights and times in an engine table, features and items in arrays."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.link_steps import write_links
from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.dataset.spec import EdgeTable
from graphfeed.ingest.dataset.values import Check, ids, numbers, rule
from graphfeed.ingest.queries import entries
from graphfeed.ingest.queries import numbers as sql_of
from graphfeed.ingest.queries.columns import integer_of_float, is_integer, is_missing
from graphfeed.ingest.tables.arrow_types import arrow, is_text
from graphfeed.ingest.tables.engine import Engine, as_numpy
from graphfeed.ingest.tables.relation import Relation, TableColumn
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import Edges

End: TypeAlias = tuple[int, dict[str, Any]]
"""The number of a node type, and the description of its nodes."""
MOST_NARROW = 1 << 31
"""Below this number of nodes, ids take four bytes."""


def ingest_edges(rows: Query, number: int, edge_type: str | None, ends: Sequence[End]) -> dict[str, Any]:
    """Read the edges of a type into a table, and return their description; `ends` describes their node types."""
    name, table, engine = f"edges_{number}", rows.table, rows.engine
    assert isinstance(table, EdgeTable)
    of_rows, rows.checks = rows.checks, []
    columns, joins = read_ends(rows, table, ends)
    rows.checks += of_rows
    columns |= read_weight(rows, table)
    rows.read_time(f"edges {edge_type or ''}")
    columns |= {"time": f"({rows.time.sql})::BIGINT"} if rows.time is not None else {}
    columns |= {"in_graph": rows.parts["train"]} if table.training_graph else {}
    if not table.has_items:
        rows.parts.clear()
    columns |= rows.of_items | {"code": entries.first_broken(rows.broken)}
    engine.run(entries.create_edges(name, columns, rows.relation.sql, joins))
    if table.time_sorted:
        refuse_earlier(rows, name, str(table.time))
    dropped = rows.find_bad(name)
    if len(dropped):
        engine.run(entries.drop_bad(name))
    described = write_edge_table(rows, table, name, dropped, ends[1][1]["count"])
    engine.run(f"{entries.drop_rows(f'rows_edge_{number}')}; CHECKPOINT")
    return described | {"problems": rows.bad.as_list(), "time": rows.time_type}


def rows_of_edges(engine: Engine, relation: Relation, table: EdgeTable, ends: Sequence[End]) -> Relation:
    """Return the rows that are edges, with the node of each as `place` if its row is its source."""
    if table.source_is_row:
        source, nodes = ends[0]
        sql = entries.with_places(relation.sql)
        # An invalid row is not a node, so its edges are left out as well.
        sql = entries.without_skipped(sql, source) if nodes.get("skipped") else sql
        relation = replace(relation, sql=sql)
    if not table.optional:
        return relation
    column, (number, described) = relation.columns[table.destination, True], ends[1]
    missing = is_missing(column.sql) if column.raw or is_text(column.type) else f"{column.sql} IS NULL"
    if not column.raw and arrow().types.is_floating(column.type):
        # pandas stores integers as floats if some are missing.
        missing = f"({missing} OR isnan({column.sql}))"
        column = replace(column, sql=integer_of_float(column.sql), type=arrow().int64(), text=column.shown)
        relation = replace(relation, columns={**relation.columns, (table.destination, True): column})
    if described.get("left_out"):
        missing += f" OR {entries.is_left_out(number, ids(column, described['texts']).sql)}"
    return relation.filtered(engine, f"NOT ({missing})")


def read_ends(rows: Query, table: EdgeTable, ends: Sequence[End]) -> tuple[dict[str, str], list[str]]:
    """Return SQL for the node numbers of sources and destinations, and the joins that find them."""
    columns, joins = dict[str, str](), list[str]()
    names = {"source": table.source, "destination": table.destination}
    for (end, name), (node, described) in zip(names.items(), ends, strict=True):
        if end == "source" and table.source_is_row:
            count = described["count"]
            rows.checks.append(Check(f"place >= {count}", "its number", f"but there are {count} nodes", "place"))
            columns[end] = "place"
            continue
        columns[end] = place_of(rows, rows.relation.columns[name, True], end, (node, described), joins)
    return columns, joins


def place_of(rows: Query, column: TableColumn, end: str, node: End, joins: list[str]) -> str:
    """Return SQL for the node numbers of a column of ids; add its rules, and the join that finds them if one does."""
    number, described = node
    if not described["texts"] and is_text(column.type):
        # If some of the strings are integers, the others are invalid rows.
        ((some,),) = rows.engine.rows(entries.is_any([is_integer(column.sql)], rows.relation.sql))
        if not some:
            raise TypeError(f"{column.table}: {column.name} has strings, but the ids of these nodes are integers")
    found, count = ids(column, described["texts"]), described["count"]
    if described["ids"] is None:
        place, reason = found.sql, f"which is out of range: there are {count} nodes, numbered from 0"
        lost = f"({place} < 0 OR {place} >= {count})"
    else:
        place, reason = f"{end}_ids.rowid", "but no row of the nodes has that id"
        lost = f"{place} IS NULL"
        joins.append(entries.join_ids(f"ids_{number}", f"{end}_ids", found.sql))
    rows.checks += [*found.checks, rule(column, lost, reason)]
    return f"TRY_CAST({place} AS {'INTEGER' if count < MOST_NARROW else 'BIGINT'})"


def read_weight(rows: Query, table: EdgeTable) -> dict[str, str]:
    """Return SQL for the weights, if they are a column."""
    if not isinstance(table.weight, str):
        return {}
    column = rows.relation.columns[table.weight, False]
    found = numbers(column, "a number")
    float32 = f"TRY_CAST({found.sql} AS FLOAT)"
    lost = f"{float32} = 0 AND {found.sql} <> 0"
    rows.checks += [
        *found.checks,
        rule(column, sql_of.is_no_weight(float32), "but a weight must be a finite number of 0 or more"),
        rule(column, lost, "which is 0 in float32, so the edge would never be sampled; scale it"),
    ]
    return {"weight": float32}


def refuse_earlier(rows: Query, name: str, column: str) -> None:
    """Mark rows whose time is earlier than that of a preceding row, unless that row is itself invalid."""
    rows.checks.append(rule(rows.relation.columns[column, False], "false", "which is earlier than in a preceding row"))
    rows.engine.run(entries.mark_earlier(name, len(rows.checks) - 1))


def write_edge_table(
    rows: Query, table: EdgeTable, name: str, dropped: NDArray[np.int64], destinations: int
) -> dict[str, Any]:
    """Write the features and the items of the edges in a table, and return their description."""
    prefix, some = name.replace("edges", "edge"), "in_graph" if table.training_graph else "true"
    ((count, in_graph),) = rows.engine.rows(entries.count_edges(name, some))
    with rows.writer.rows(f"{prefix}_") as arrays:
        features = rows.write_features(arrays, dropped)
        time = "time" if rows.time is not None else f"({table.time})::BIGINT"
        timestamp = {} if table.time is None else {"timestamp": time}
        linked = [part for part in rows.parts if part != "train" and table.negatives and count]
        for part in linked:
            write_links(rows, arrays, name, part, table.negatives, timestamp, destinations)
            del rows.parts[part]
        columns = {name: name for name in rows.of_items} | timestamp
        items = rows.write_items(arrays, name, count, columns, ("source", "destination"))
    groups = dict.fromkeys(linked, table.negatives + 1)
    counts = {"count": count, "in_graph": in_graph}
    return items | {"features": features, "categories": rows.categories, "group_sizes": groups} | counts


def reversed_edges(described: dict[str, Any]) -> dict[str, Any]:
    """Return the description of the same edges with exchanged ends, which have the same features, but not the items."""
    return {**described, "items": {}, "classes": None, "num_classes": 0}


def identity(source: TableSource) -> Any:
    """Return the path of a table's file, or a number that no other frame has."""
    return source.source if isinstance(source.source, Path) else id(source.source)


def warn_of_leaks(
    edges: Mapping[str | None, EdgeTable], sources: Mapping[tuple[str, str | None], Sequence[TableSource]]
) -> None:
    """Warn if an entry keeps edges in the graph that another entry of the same table holds out."""
    with_files = [(name, table) for name, table in edges.items() if table.reverse_of is None]
    for held, table in [(name, table) for name, table in with_files if table.training_graph]:
        tables = set(map(identity, sources["edges", held]))
        for name, other in with_files:
            same = {other.source, other.destination} == {table.source, table.destination}
            same = same and not tables.isdisjoint(map(identity, sources["edges", name]))
            if name == held or not same or (other.training_graph and other.splits == table.splits):
                continue
            exchanged = other.source != table.source
            remedy = (
                f"give it reverse_of: {held} as its only key"
                if exchanged
                else "give it the same split and training_graph"
            )
            warnings.warn(
                f"the edges {name} are read from the table of {held}{' with exchanged ends' if exchanged else ''}, so "
                f"the graph shows the edges of {held} that training_graph holds out; {remedy}",
                stacklevel=2,
            )


@dataclass(frozen=True)
class TableEdges(Edges):
    """The edges of one type in a table of the engine, in the order of their rows."""

    engine: Engine
    table: str
    num_edges: int
    columns: Sequence[str]
    constants: Mapping[str, Any]
    """Values of attributes that are constant for all edges."""

    def __len__(self) -> int:
        return self.num_edges

    def parts(self, first: int, last: int, /) -> Iterator[Any]:
        low, high = first - self.first_nodes[1], last - self.first_nodes[1]
        some = f"destination >= {low} AND destination < {high}"
        return self.engine.stream(entries.select(["source", "destination", *self.columns], self.table, some))

    def destinations(self, _num_nodes: int) -> Iterator[NDArray[Any]]:
        """Yield the destinations of all edges, without reading other columns."""
        parts = self.engine.stream(entries.select(["destination"], self.table))
        return (self.read("destination", part) for part in parts)

    def column(self, name: str, part: Any) -> NDArray[Any]:
        return np.array(self.constants[name]) if name in self.constants else as_numpy(part.column(name))
