"""Conversion of tables to the items of a task: nodes, times, and labels or lists of destinations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfeed.ingest.dataset.bad_rows import BadRows
from graphfeed.ingest.dataset.edge_steps import End, place_of
from graphfeed.ingest.dataset.inputs import load_rows
from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.dataset.spec import NodeTable
from graphfeed.ingest.dataset.task_table import TaskTable
from graphfeed.ingest.dataset.values import ids, rule
from graphfeed.ingest.queries import entries
from graphfeed.ingest.queries.columns import sql_type
from graphfeed.ingest.tables.arrow_types import is_arrow_list, is_text
from graphfeed.ingest.tables.engine import Engine, as_numpy
from graphfeed.ingest.tables.relation import Relation
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import RowFiles

MakeQuery = Callable[..., Query]
"""Makes the query of a `NodeTable`, its relation, and its invalid rows."""
GROUPS = (("train", "validation"), ("test",))
"""Parts that are read together, because they share the classes of their labels. Those for testing are hidden."""


def ingest_task(
    engine: Engine,
    make: MakeQuery,
    task: TaskTable,
    number: int,
    sources: Mapping[str, Sequence[TableSource]],
    ends: Sequence[End],
    bad: BadRows,
) -> dict[str, Any]:
    """Write the items of a task, and return their description; `ends` has the node types of items and destinations."""
    result: dict[str, Any] = {"items": {}, "offsets": {}, "classes": None, "num_classes": 0, "time": None}
    for group in GROUPS:
        parts = [part for part in group if sources.get(part)]
        if not parts:
            continue
        name, hidden = f"task_{number}_{parts[0]}", group == ("test",)
        label = None if hidden else task.label
        table = NodeTable(
            [source.source for part in parts for source in sources[part]], id=task.seeds, time=task.time, label=label
        )
        more = {} if hidden or task.destinations is None else {(task.destinations, False): "any"}
        of_parts = [source for part in parts for source in sources[part]]
        relation = load_rows(engine, f"rows_{name}", table, of_parts, bad, more)
        relation = without_left_out(engine, relation, task.seeds, ends[0], bad)
        rows = make(table, relation, bad, real_labels=task.dtype is not None)
        firsts = np.cumsum([0, *(len(sources[part]) for part in parts)]).tolist()
        within = zip(parts, firsts, firsts[1:], strict=False)
        rows.parts = {part: f"file >= {low} AND file < {high}" for part, low, high in within}
        found = write_part_items(rows, task, name, number, ends, listed=bool(more))
        result["items"] |= found["items"]
        result["offsets"] |= found["offsets"]
        known, own = result["time"], rows.time_type
        if known is not None and own is not None and known[2] != own[2]:
            raise TypeError(
                f"{of_parts[0].name}: {task.time} is {own[1]}, but the items for training have {known[1]}; save all "
                "times with one type"
            )
        result["time"] = own
        if not hidden:
            result |= {"classes": found["classes"], "num_classes": found["num_classes"]}
    return result | {"problems": bad.as_list()}


def without_left_out(engine: Engine, relation: Relation, column: str, end: End, bad: BadRows) -> Relation:
    """Return the rows except those of nodes that `until` left out of their table, which are reported."""
    number, described = end
    if not described.get("left_out"):
        return relation
    values = ids(relation.columns[column, True], described["texts"])
    kept = relation.filtered(engine, f"NOT {entries.is_left_out(number, values.sql)}")
    gone = entries.coded(str(kept.rest), 0)
    for _, first, count in relation.by_table(engine, gone):
        source, row = relation.place(first)
        bad.count(source.name, f"the node of {column} was left out", count, f"row {row}: {column}")
    return kept


def write_part_items(
    rows: Query, task: TaskTable, name: str, number: int, ends: Sequence[End], *, listed: bool
) -> dict[str, Any]:
    """Write the items of some parts, and return their files."""
    engine, relation = rows.engine, rows.relation
    of_rows, rows.checks, joins = rows.checks, [], list[str]()
    node = place_of(rows, relation.columns[task.seeds, True], "source", ends[0], joins)
    rows.checks += of_rows
    rows.read_time(f"task {number}")
    lists = f"listed_{name}"
    if listed:
        list_destinations(rows, str(task.destinations), lists, ends[1])
        rows.parts["train"] = f"{rows.parts['train']} AND n IN (SELECT n FROM {lists} WHERE place IS NOT NULL)"
    columns = {"source": node} | ({} if rows.time is None else {"time": f"({rows.time.sql})::BIGINT"})
    columns |= rows.of_items | {"code": entries.first_broken(rows.broken)}
    engine.run(entries.create_edges(name, columns, relation.sql, joins))
    if len(rows.find_bad(name)):
        engine.run(entries.drop_bad(name))
    ((count,),) = engine.rows(entries.count_all(name))
    members = {name: name for name in rows.of_items} | ({} if rows.time is None else {"timestamp": "time"})
    with rows.writer.rows(f"task_{number}_") as arrays:
        found = rows.write_items(arrays, name, count, members, ("source",))
        offsets = {part: write_lists(rows, arrays, name, lists, part) for part in rows.parts} if listed else {}
        for part in offsets:
            found["items"][part]["destinations"] = arrays.file(f"{part}_destinations")
    for table in (f"rows_{name}", name, lists):
        engine.run(entries.drop_rows(table))
    return found | {"offsets": offsets}


def list_destinations(rows: Query, column_name: str, lists: str, end: End) -> None:
    """Create the table of the destinations of each row, and add the rule that these are nodes."""
    column, (number, described) = rows.relation.columns[column_name, False], end
    if not is_arrow_list(column.type):
        raise TypeError(f"{column.table}: {column_name} must have lists of ids, but has {column.type}")
    kind = "VARCHAR" if described["texts"] else "BIGINT"
    if is_text(column.type.value_type) != described["texts"] or sql_type(column.type.value_type) in {"FLOAT", "DOUBLE"}:
        ids_are = "strings" if described["texts"] else "integers"
        raise TypeError(f"{column.table}: {column_name} has {column.type}, but the ids of these nodes are {ids_are}")
    place = None if described["ids"] is None else number
    rows.engine.run(
        entries.create_lists(lists, f"({column.sql})::{kind}[]", rows.relation.sql, place, described["count"])
    )
    known = f"NOT {entries.is_left_out(number, 'id')}" if described.get("left_out") else "true"
    broken = f"n IN (SELECT n FROM {lists} WHERE place IS NULL AND {known})"
    rows.checks.append(rule(column, broken, "but some of these ids are not those of nodes", f"({column.sql})::VARCHAR"))


def write_lists(rows: Query, arrays: RowFiles, table: str, lists: str, part: str) -> str:
    """Write the destinations of the items of a part, one item after another; return the file of their offsets."""
    first, none = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    arrays.append(f"{part}_offsets", first)
    arrays.append(f"{part}_destinations", none)
    for batch in rows.engine.stream(entries.count_listed(table, lists, part)):
        first = first[-1] + np.cumsum(as_numpy(batch.column(0)))
        arrays.append(f"{part}_offsets", first)
    for batch in rows.engine.stream(entries.select_listed(table, lists, part)):
        arrays.append(f"{part}_destinations", as_numpy(batch.column(0)).astype(np.int64))
    return arrays.file(f"{part}_offsets")
