"""Builds the folder of an `OnDiskDataset` from tables: reads nodes and edges, sorts the edges, writes the metadata."""

import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphfeed.ingest.dataset.bad_rows import BadRows, OnError
from graphfeed.ingest.dataset.edge_steps import TableEdges, ingest_edges, reversed_edges, rows_of_edges, warn_of_leaks
from graphfeed.ingest.dataset.inputs import load_rows, open_references, refuse_numbers_that_are_columns
from graphfeed.ingest.dataset.journal import JOURNAL, InputFiles, Journal, step_digest
from graphfeed.ingest.dataset.node_steps import collect_nodes, ingest_nodes, rows_of_arrays
from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.dataset.spec import EdgeTable, Spec, read_spec
from graphfeed.ingest.dataset.task_metadata import describe_tasks, narrow_seeds, task_metadata
from graphfeed.ingest.dataset.task_steps import ingest_task
from graphfeed.ingest.queries import entries
from graphfeed.ingest.tables.engine import Engine, as_numpy
from graphfeed.ingest.tables.relation import Relation
from graphfeed.ingest.tables.table import NUMPY, TableSource, find_sources
from graphfeed.ops import ALWAYS
from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.process import current_limits, local_path, progress_bar
from graphfeed.storage.datasets import (
    EDGE_IDS,
    LAYOUT,
    PROCESSED,
    SCRATCH,
    ArrayWriter,
    DatasetWriter,
    EdgeArray,
    OnDiskDataset,
    Sorting,
    id_dtype,
    memory_for_sorting,
    sync_folder,
    write_edges,
)
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ends_of, first_ids

TIMES = "node_0.npy"
"""File name of the times of nodes."""


@checked
def build_dataset(
    spec: Spec | str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    memory: int | None = None,
    on_error: OnError = "raise",
    progress: bool = True,
    executor: Executor | None = None,
) -> OnDiskDataset:
    """Build a data set from tables: files of Parquet, Arrow, CSV, NDJSON, NumPy or TFRecord, or any stream of Arrow.

    The folder appears when everything is on the disk. An interrupted run keeps its finished steps in a hidden folder
    next to it, and the next run with the same files resumes from there. The same tables give the same bytes. DuckDB and
    pyarrow are required: `pip install ".[arrow]"`. `docs/ingest.md` describes specifications.

    Args:
        spec: The tables and the roles of their columns, or the path of a YAML file that specifies them.
        folder: The folder to write, which must be new or empty. By default the result is in memory only.
        memory: Limit in bytes for the engine, which takes 128 MiB more, and for sorting edges; at least 16 MiB, by
            default a quarter of the machine's memory. In addition, 8 bytes per node are in memory.
        on_error: "raise" an error at the first invalid row, or "skip" such rows and count them.
        progress: Whether to show a progress bar in a terminal.
        executor: Executor that sorts the edges, such as a pool of processes or a cluster's, whose workers must see the
            folder under the same path. Each worker takes `memory`. None: this thread. The bytes are the same.

    Returns:
        The data set. If it is in memory only, its `load()` has been called.

    Raises:
        concurrent.futures.BrokenExecutor: The executor lost a worker, and the whole pool with it.
        FileExistsError: The folder is not empty, or another process is writing it.
        MemoryError: A step needs more memory than `memory` allows.
        OSError: The disk has too little space for the result, or can't be written.
        TypeError: A column has values of the wrong type.
        ValueError: The specification, a file or a value is invalid; the error names the file, the row and the value.

    Example:
        >>> import numpy as np
        >>> links = {"from": np.array(["a", "b"]), "to": np.array(["b", "c"])}
        >>> edges = EdgeTable(links, source="from", destination="to")
        >>> dataset = build_dataset(Spec({"page:links:page": edges}))
        >>> dataset.graph
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2, node_types=['page'], edge_types=1)
        >>> dataset.ids("page")[[2, 0]]
        ['c', 'a']
    """
    if on_error not in {"raise", "skip"}:
        raise ValueError(f"on_error must be 'raise' or 'skip', but is {brief(on_error)}")
    if memory is not None and memory < (least := current_limits().part_bytes):
        raise ValueError(f"memory must be at least {least} bytes, but is {memory}")
    plan = spec if isinstance(spec, Spec) else read_spec(spec)
    budget = memory_for_sorting() if memory is None else memory
    if folder is not None:
        Builder(plan, Path(local_path("folder", folder)), budget, on_error, progress, executor).build(in_memory=False)
        return OnDiskDataset(folder)
    with tempfile.TemporaryDirectory() as temporary:
        Builder(plan, Path(temporary) / "dataset", budget, on_error, progress, executor).build(in_memory=True)
        return OnDiskDataset(Path(temporary) / "dataset").load()


class Builder:
    """Builds the folder of a data set, step by step."""

    def __init__(
        self, spec: Spec, folder: Path, memory: int, on_error: OnError, progress: bool, executor: Executor | None
    ) -> None:
        self.spec, self.folder, self.memory, self.on_error = spec, folder, memory, on_error
        self.executor = executor
        self.progress = partial(progress_bar, unit="row", wanted=progress)
        self.nodes, self.edges = spec.node_tables, spec.edge_tables
        self.originals = {edge_type: table.reverse_of or edge_type for edge_type, table in self.edges.items()}
        """The edge type whose table has the edges: itself, or the one that it is the reverse of."""
        self.with_rows = spec.has_edge_features
        self.attributes = [name for name in ("weight", "time") if has_any(self.edges, name)]
        self.node_time = has_any(self.nodes, "time")
        self.sources: dict[tuple[str, str | None], list[TableSource]] = {
            (key, type_name): find_sources(
                table.files, spec.folder, header=table.header, pairs=key == "edges", memory=memory
            )
            for key, tables in (("nodes", self.nodes), ("edges", self.edges))
            for type_name, table in tables.items()
        }
        self.sources |= {
            (f"tasks.{part}", name): find_sources(files, spec.folder, header=True, pairs=False, memory=memory)
            for name, task in spec.tasks.items()
            for part, files in task.parts.items()
        }
        self.inputs = InputFiles()
        # Before anything is read: schemas are only valid as long as the files don't change.
        self.inputs.remember(source.name for group in self.sources.values() for source in group if source.is_file)
        for (key, name), group in self.sources.items():
            tables_of_key: Mapping[str | None, Any] = self.nodes if key == "nodes" else self.edges
            if key in {"nodes", "edges"}:
                refuse_numbers_that_are_columns(f"{key} {name or ''}".strip(), tables_of_key[name], group)
        warn_of_leaks(self.edges, self.sources)
        self.problems: list[dict[str, Any]] = []
        self.keys: dict[str, str] = {}
        self.times: list[tuple[str, str, str | None]] = []
        self.loaded: dict[str | None, tuple[Relation, BadRows]] = {}

    def build(self, in_memory: bool) -> None:
        """Run all steps that no earlier run has finished."""
        resume = None if in_memory else JOURNAL
        with DatasetWriter.open(self.folder, PROCESSED, PROCESSED, resume=resume) as self.writer:
            unfinished, self.graph = self.writer.unfinished, self.writer.graph
            self.journal = Journal(unfinished)
            self.scratch = unfinished / SCRATCH
            file = self.scratch / "tables.duckdb"
            with Engine(file, self.memory) as engine:
                self.engine = engine
                nodes = {name: self.read_nodes(number, name) for number, name in enumerate(self.nodes)}
                counts = {name: described["count"] for name, described in nodes.items()}
                edges = self.read_all_edges(nodes)
                tasks = {name: self.read_task(number, name, nodes) for number, name in enumerate(self.spec.tasks)}
                self.write_times(engine, counts)
            key = step_digest([self.spec.typed, list(self.nodes), self.originals, self.keys])

            def sort() -> dict[str, Any]:
                with Engine(file, self.memory // 4, read_only=True) as engine:
                    return {"topology": self.sort(engine, edges, counts)}

            topology = self.once("sort", key, sort)["topology"]
            metadata = self.describe(nodes, edges, tasks, topology, in_memory)
            self.journal.keep_only([*self.keys, "sort"])
            self.writer.remove_others(metadata)
            self.writer.finish(metadata, progress=self.progress)
            OnDiskDataset(unfinished)  # raises if it can't be opened, before the folder gets its final name

    def key_of(self, step: str, table: Any, sources: list[TableSource], *others: str) -> str:
        """Return a string that changes with every input of a step."""
        files = self.inputs.remember(source.name for source in sources if source.is_file)
        # Frames are never considered equal to those of another run.
        frames = [os.urandom(8).hex() for source in sources if not source.is_file]
        fields = {name: value for name, value in vars(table).items() if name != "files"}
        arrays = [
            self.spec.folder / name.partition("#")[0]
            for names in getattr(table, "features", {}).values()
            for name in names
        ]
        given = self.inputs.remember(str(path) for path in arrays if path.suffix in NUMPY and path.is_file())
        columns = [self.spec.time_unit, *([self.with_rows, self.attributes] if isinstance(table, EdgeTable) else [])]
        others_keys = [self.keys[other] for other in others]
        self.keys[step] = step_digest([repr(fields), files, frames, given, self.on_error, columns, others_keys])
        return self.keys[step]

    def once(self, step: str, key: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a step. The step runs unless an earlier run has finished it with the same key."""
        known = self.journal.find(step, key)
        if known is None:
            known = run()
            self.inputs.check_unchanged()
            # The contents of the files are on the disk already, but maybe not their names.
            sync_folder(self.writer.folder)
            sync_folder(self.scratch)
            self.journal.record_step(step, key, **known)
        self.problems += known.get("problems", [])
        self.check_time(known.get("time"))
        return known

    def check_time(self, found: list[Any] | None) -> None:
        """Raise a TypeError unless all columns of times have the same unit."""
        if found is None:
            return
        name, arrow_type, unit = found
        known, known_type, known_unit = self.times[0] if self.times else found
        if unit != known_unit:
            raise TypeError(
                f"the time of {name} is {arrow_type}, but that of {known} is {known_type}; save all times with one type"
            )
        self.times.append((name, arrow_type, unit))

    def read_nodes(self, number: int, node_type: str | None) -> dict[str, Any]:
        """Read the nodes of a type, unless an earlier run did, and return their description."""
        table, sources, step = self.nodes[node_type], self.sources["nodes", node_type], f"node_{number}"
        ends: list[tuple[str | None, str]] = []
        # Nodes without any specification are those that edges name.
        if not sources and table.count is None and not table.features:
            for edge_type, edges in [(name, self.edges[name]) for name in dict.fromkeys(self.originals.values())]:
                for end, column in zip(ends_of(edge_type), (edges.source, edges.destination), strict=True):
                    ends += [(edge_type, column)] if end == node_type else []
        read = [*sources, *(source for edge_type, _ in ends for source in self.sources["edges", edge_type])]

        def run() -> dict[str, Any]:
            with self.progress(f"reading nodes {node_type or ''}".strip(), 0) as bar:
                if not ends:
                    bad = BadRows(self.on_error)
                    if sources:
                        relation = load_rows(self.engine, f"rows_{step}", table, sources, bad)
                    else:
                        relation = rows_of_arrays(table, open_references(table, self.spec.folder, self.memory))
                    rows = Query(self.engine, self.spec, self.writer, table, relation, bad, bar)
                    return ingest_nodes(rows, number, node_type)
                relations = [(self.load_edges(edge_type)[0], column) for edge_type, column in ends]
                columns = [(relation, relation.columns[column, True]) for relation, column in relations]
                return collect_nodes(self.engine, self.writer, number, columns, bar)

        return self.once(step, self.key_of(step, table, read), run)

    def load_edges(self, edge_type: str | None) -> tuple[Relation, BadRows]:
        """Return the rows of edges, which may also provide node ids, and the lines that were skipped."""
        if edge_type not in self.loaded:
            name, bad = f"rows_edge_{list(self.edges).index(edge_type)}", BadRows(self.on_error)
            table, sources = self.edges[edge_type], self.sources["edges", edge_type]
            self.loaded[edge_type] = load_rows(self.engine, name, table, sources, bad), bad
        return self.loaded[edge_type]

    def read_all_edges(self, nodes: Mapping[str | None, dict[str, Any]]) -> dict[str | None, dict[str, Any]]:
        """Read the edges of all types that have a table, and return the descriptions of all types."""
        read = {
            name: self.read_edges(number, name, nodes)
            for number, name in enumerate(self.edges)
            if self.originals[name] == name
        }
        return {
            name: read[name] if name in read else reversed_edges(read[original])
            for name, original in self.originals.items()
        }

    def read_edges(
        self, number: int, edge_type: str | None, nodes: Mapping[str | None, dict[str, Any]]
    ) -> dict[str, Any]:
        """Read the edges of a type, unless an earlier run did, and return their description."""
        table, sources, step = self.edges[edge_type], self.sources["edges", edge_type], f"edge_{number}"
        order = list(self.nodes)
        ends = [(order.index(end), nodes[end]) for end in ends_of(edge_type)]

        def run() -> dict[str, Any]:
            with self.progress(f"reading edges {edge_type or ''}".strip(), 0) as bar:
                relation, bad = self.load_edges(edge_type)
                relation = rows_of_edges(self.engine, relation, table, ends)
                rows = Query(self.engine, self.spec, self.writer, table, relation, bad, bar)
                return ingest_edges(rows, number, edge_type, ends)

        key = self.key_of(step, table, sources, *(f"node_{end}" for end, _ in ends))
        return self.once(step, key, run)

    def read_task(self, number: int, name: str, nodes: Mapping[str | None, dict[str, Any]]) -> dict[str, Any]:
        """Read the items of a task, unless an earlier run did, and return their description."""
        task, order, step = self.spec.tasks[name], list(self.nodes), f"task_{number}"
        sources = {part: self.sources[f"tasks.{part}", name] for part in task.parts}
        ends = [(order.index(end), nodes[end]) for end in (task.nodes, task.destination_nodes) if end is not None]

        def run() -> dict[str, Any]:
            with self.progress(f"reading task {name}", 0) as bar:
                make = partial(Query, self.engine, self.spec, self.writer, bar=bar)
                return ingest_task(self.engine, make, task, number, sources, ends, BadRows(self.on_error))

        every = [source for group in sources.values() for source in group]
        return self.once(step, self.key_of(step, task, every, *(f"node_{end}" for end, _ in ends)), run)

    def sort(
        self, engine: Engine, edges: Mapping[str | None, dict[str, Any]], counts: Mapping[str | None, int]
    ) -> dict[str, Any]:
        """Sort the edges, and return the description of the graph."""
        first, parts = first_ids(counts), []
        for number, (edge_type, info) in enumerate(edges.items()):
            ends, original = ends_of(edge_type), self.originals[edge_type]
            entry, rows_of = self.edges[original], list(self.edges).index(original)
            constants = {name: getattr(entry, name) for name in self.attributes}
            constants = {
                name: WITHOUT[name] if value is None else value
                for name, value in constants.items()
                if not isinstance(value, str)
            }
            # Features have the rows of the tables, even of edges that are not in the graph.
            turned, some = original != edge_type, entry.training_graph
            table = entries.edges_of_graph(f"edges_{rows_of}", turned=turned, some=some)
            firsts = first[ends[0]], first[ends[1]]
            columns = [name for name in self.attributes if name not in constants]
            columns += ["row"] if self.with_rows else []
            parts.append(TableEdges(edge_type, number, firsts, engine, table, info["in_graph"], columns, constants))
        attributes = {
            name: EdgeArray(self.graph / f"edge_{number}.npy", name, np.dtype({"weight": "f4", "time": "i8"}[name]))
            for number, name in enumerate(self.attributes)
        }
        # Features stay in the order of the tables, so a sorted edge needs its row number there.
        if self.with_rows:
            rows = id_dtype(sum(info["count"] for info in edges.values()), True)
            attributes[ORIGINAL_EDGE_ID] = EdgeArray(self.graph / EDGE_IDS, "row", rows)
        # Half of the memory is for the range being sorted.
        sorting = Sorting(self.memory // 2, self.executor)
        topology = write_edges(self.graph, parts, counts, attributes, True, sorting, self.progress)
        topology["node_attributes"] = {"time": TIMES} if self.node_time else {}
        sync_folder(self.graph)
        return topology

    def write_times(self, engine: Engine, counts: Mapping[str | None, int]) -> None:
        """Write the times of all nodes, one type after another."""
        if not self.node_time:
            return
        with ArrayWriter(self.graph / TIMES, (sum(counts.values()),), np.int64) as writer:
            for number, (name, count) in enumerate(counts.items()):
                given = self.nodes[name].time
                one = WITHOUT["time"] if given is None else given
                times = f"times_{number}" if isinstance(one, str) else entries.same_times(int(one), count)
                for batch in engine.stream(entries.select(["time"], times)):
                    writer.append(as_numpy(batch.column(0)))

    def describe(
        self,
        nodes: Mapping[str | None, dict[str, Any]],
        edges: Mapping[str | None, dict[str, Any]],
        of_tasks: Mapping[str, dict[str, Any]],
        topology: dict[str, Any],
        in_memory: bool,
    ) -> dict[str, Any]:
        """Return the metadata of the data set."""
        narrow_seeds(self.writer.folder, nodes, edges, of_tasks)
        features, tasks = [], []
        reverses = {table.reverse_of: name for name, table in self.spec.edges.items() if table.reverse_of is not None}
        for domain, described in (("node", nodes), ("edge", edges)):
            for type_name, info in described.items():
                for name, file in info["features"].items():
                    entry = {"domain": domain, "type": type_name, "name": name, "format": "numpy"}
                    codes = info.get("categories", {}).get(name)
                    entry |= {} if codes is None else {"categories": codes}
                    features.append(entry | {"path": self.writer.path(file), "in_memory": in_memory})
            tasks += describe_tasks(described, domain, self.writer, in_memory, reverses)
        for name, info in of_tasks.items():
            task = self.spec.tasks[name]
            entry = task_metadata({task.nodes: info}, name, self.writer, in_memory) | dict(task.metadata)
            tasks.append(entry | ({} if task.destinations is None else {"destination_type": task.destination_nodes}))
        ids = {
            type_name or "": {name: self.writer.path(file) for name, file in files.items()}
            for type_name, info in nodes.items()
            if (files := info["ids"] or info.get("names"))
        }
        return {
            "layout": LAYOUT,
            "include_original_edge_id": self.with_rows,
            "auto_cast_to_optimal_dtype": True,
            "dataset_name": self.spec.name or None,
            "graph_topology": topology | {"in_memory": in_memory},
            "feature_data": features,
            "tasks": tasks,
            "ids": ids,
            "time_unit": self.times[0][2] if self.times else None,
            "skipped": self.problems,
        }


WITHOUT = {"weight": 1, "time": ALWAYS}
"""Weight and time written for types without any if other types have some; ALWAYS means that they always exist."""


def has_any(tables: Mapping[str | None, Any], name: str) -> bool:
    return any(getattr(table, name, None) is not None for table in tables.values())
