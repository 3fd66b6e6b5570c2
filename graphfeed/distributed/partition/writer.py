"""Writes a partitioned graph with its features to a folder (layout: `part_layout`), task by task."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.edge_positions import edge_positions, pieces_of
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.distributed.partition.part_layout import (
    CODING,
    FILE_NAME,
    VERSION,
    ArrayEntry,
    Key,
    PartitionMetadata,
    check_num_parts,
    column_files,
    features_by_key,
    file_dtype,
    parse_entry,
    part_folder,
    to_numpy,
    write_identity,
)
from graphfeed.ops.arguments import checked
from graphfeed.ops.process import current_limits, progress_bar
from graphfeed.storage import DiskBasedFeature, Feature, FeatureKey, FeatureStore
from graphfeed.storage.datasets import (
    SCRATCH,
    ArrayWriter,
    DatasetWriter,
    FileTask,
    check_new_folder,
    checksums_of,
    run_tasks,
)
from graphfeed.storage.features import is_encoded, row_type, stored_rows
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ByType, GraphArrays, stacked_assignment, to_type_dict
from graphfeed.storage.memory import FilePlace, find_places, map_new_npy, map_npy, new_stamp, stamp_file, tensors_in

Entries: TypeAlias = list[dict[str, Any]]
"""The result of a task: for each array that it has written, the fields of an `ArrayEntry`."""


class Target(NamedTuple):
    """The array of a partition that a task writes."""

    part: int | None
    """None for an array that all parts need."""
    role: str
    key: Key = ()
    number: int = 0
    """Distinguishes arrays with keys in file names, because file systems may not allow every key."""

    @property
    def path(self) -> str:
        folder = "" if self.part is None else f"{part_folder(self.part)}/"
        return f"{folder}{self.role}_{self.number}.npy" if self.key else f"{folder}{self.role}.npy"

    def open(self, folder: Path, dtype: torch.dtype, row: Sequence[int]) -> ArrayWriter:
        path = folder / self.path
        path.parent.mkdir(exist_ok=True)
        return ArrayWriter(path, (None, *row), file_dtype(dtype))  # with any number of rows

    def describe(self, dtype: torch.dtype, shape: Sequence[int]) -> dict[str, Any]:
        return asdict(ArrayEntry(self.path, self.role, self.key, str(dtype).removeprefix("torch."), tuple(shape)))


class PartRows(NamedTuple):
    """The rows of a feature that a part owns."""

    file: Path
    """File with the owner of each row."""
    bounds: tuple[int, int | None]
    """Range of the file's values that belong to this feature."""
    part: int
    """The owner."""

    def pieces(self, most: int) -> Iterator[torch.Tensor]:
        values = map_npy(self.file)[slice(*self.bounds)]
        step = current_limits().part_values
        for low in range(0, len(values), step):
            ids = low + np.flatnonzero(values[low : low + step] == self.part)
            if ids.size:
                yield from torch.split(torch.from_numpy(ids), most)


def write_values(values: torch.Tensor, target: Target, folder: Path) -> Entries:
    values = values.cpu()
    with target.open(folder, values.dtype, values.shape[1:]) as writer:
        writer.append(to_numpy(values))
    return [target.describe(values.dtype, values.shape)]


def write_part_edges(graph: GraphArrays, node_parts: Path, part: int, stamp: int, folder: Path) -> Entries:
    """Write the in-edges of a part's nodes, and stamp the files of the columns; `node_parts` has each node's part."""
    parts: NDArray[Any] = map_npy(node_parts)
    indptr, of_starts, of_sources = graph.csc_indptr.numpy(), Target(part, "csc_indptr"), Target(part, "indices")
    arrays = {of_sources: graph.indices}
    if graph.type_per_edge is not None:
        arrays[Target(part, "type_per_edge")] = graph.type_per_edge
    for number, (name, values) in enumerate(graph.edge_attributes.items(), len(arrays)):
        arrays[Target(part, "edge_attributes", (name,), number)] = values
    with ExitStack() as stack:
        starts, *opened = [
            stack.enter_context(target.open(folder, values.dtype, values.shape[1:]))
            for target, values in {of_starts: graph.csc_indptr, **arrays}.items()
        ]
        writers = dict(zip(arrays, opened, strict=True))
        starts.append(np.zeros(1, dtype=np.int64))
        step = current_limits().part_values
        for low in range(0, parts.size, step):
            owned = parts[low : low + step] == part
            # All nodes of the graph have a column, but those of other parts have no edges in it.
            degrees = np.diff(indptr[low : low + owned.size + 1]) * owned
            starts.append(writers[of_sources].rows + np.cumsum(degrees, dtype=np.int64))
            for positions in edge_positions(indptr, low + np.flatnonzero(owned)):
                for target, values in arrays.items():
                    writers[target].append(to_numpy(values)[positions])
    entries = [of_starts.describe(graph.csc_indptr.dtype, (starts.rows,))]
    for target, values in arrays.items():
        entries.append(target.describe(values.dtype, (writers[target].rows, *values.shape[1:])))
    for name in column_files(ArrayEntry(**entry) for entry in entries):
        stamp_file(folder / name, stamp)
    return entries


def write_edge_parts(
    graph: GraphArrays, node_parts: Path, target: Target, number: int, count: int, folder: Path
) -> Entries:
    """Write the part of each edge of a type, by edge id."""
    # The target's key is the type, `number` its number, and `count` the number of rows of the type's features.
    parts: NDArray[Any] = map_npy(node_parts)
    ids, types = graph.edge_attributes.get(ORIGINAL_EDGE_ID), graph.type_per_edge
    # In a file, whose pages the system can evict.
    owners = map_new_npy(folder / target.path, (count,), parts.dtype)
    for edges, columns, counts in pieces_of(graph.csc_indptr.numpy()):
        destinations = np.repeat(np.arange(columns.start, columns.stop), counts)
        own = slice(None) if types is None else types[edges].numpy() == number
        some = (np.arange(edges.start, edges.stop) if ids is None else ids[edges].numpy())[own]
        if some.size and int(some.max()) >= count:
            raise ValueError(
                f"features of edge type {target.key[0]!r} have {count} rows, but there is an edge {some.max()}"
            )
        owners[some] = parts[destinations[own]]
    owners.flush()
    return [target.describe(torch.from_numpy(owners[:0]).dtype, (count,))]


def write_part_rows(feature: Feature, rows: PartRows, target: Target, folder: Path) -> Entries:
    dtype, row = row_type(feature), tuple(feature.size())
    # The number of rows in `Limits.part_bytes`, but at least one.
    step = max(current_limits().part_bytes // max(prod(row) * dtype.itemsize, 1), 1)
    with target.open(folder, dtype, row) as writer:
        for ids in rows.pieces(step):
            writer.append(to_numpy(feature.read(ids).cpu()))
    return [target.describe(dtype, (writer.rows, *row))]


def sum_arrays(root: Path, folder: Path, _aside: Path) -> dict[str, str]:
    """Return the checksums of the arrays in a folder of a partition."""
    return checksums_of(root, sorted(folder.glob("*.npy")), partial(progress_bar, wanted=False))


JOURNAL = f"{SCRATCH}/key.txt"
SMALL_BYTES = 1 << 13
"""Tensors up to this size are compared by value, to find out whether an interrupted run had the same graph."""


@checked
def write_partition(
    root: str | os.PathLike[str],
    graph: GraphArrays,
    assignment: ByType,
    num_parts: int,
    features: FeatureStore | None = None,
    executor: Executor | None = None,
) -> Path:
    """Write a partitioned graph to a new folder, from which `open_part` maps its parts.

    A part has the in-edges of its nodes in their order in the graph, with global ids, types and attributes, and the
    rows of the features of its nodes and edges. The attributes of nodes and the features of the graph are stored once,
    for all parts.

    Graph and features are read in chunks, so they may be larger than memory. The folder appears once all of it is on
    disk. If both are stored in files, an interrupted run keeps finished files in a hidden folder next to it, and the
    next run with the same arguments continues from there; otherwise a failure leaves nothing.

    Args:
        root: The folder, which must be empty or not exist, and must not be the working directory.
        assignment: The part of each node, for example from `assign_nodes`; by node type if the graph has types.
        num_parts: At most 65,536; some parts may be empty.
        features: Features of nodes by id, and of edges by the ids of sampled edges.
        executor: Executor of the writing tasks, such as a process pool or a cluster's. Its workers must see the files
            under the same paths, and receive graph and features like workers of a `DataLoader`. None: this thread.

    Returns:
        The folder.

    Raises:
        concurrent.futures.BrokenExecutor: A worker of the executor was lost.
        FileExistsError: The folder is not empty, or can't be replaced.
        ValueError: The assignment lacks a part for a node, a feature lacks a row, or there are too many parts.
    """
    check_num_parts(num_parts)
    check_new_folder(Path(root))
    parts = stacked_assignment(graph, assignment, num_parts).to(smallest_dtype(num_parts))
    graph.ensure_checked(whole=False)
    graph, by_key = graph.to("cpu"), features_by_key(features)
    key = partition_key(graph, parts, num_parts, by_key)
    with DatasetWriter.open(Path(root), resume=None if key is None else JOURNAL, key=key) as writer:
        PartitionWriter(writer, graph, parts, num_parts, executor).write(by_key)
    return Path(root)


def partition_key(
    graph: GraphArrays, parts: torch.Tensor, num_parts: int, features: Mapping[FeatureKey, Feature]
) -> str | None:
    """Return a fingerprint of the inputs of a partition; None if they are not all in files, or it is unknown."""
    names = [*graph.node_attributes], [*graph.edge_attributes]
    digest = hashlib.sha256(repr((VERSION, num_parts, graph.num_nodes, graph.edge_type_to_id, *names)).encode())
    digest.update(parts.contiguous().numpy().data)
    tensors = [*tensors_in(graph.fields())]
    for tensor, place in zip(tensors, find_places(tensors, SMALL_BYTES), strict=True):
        if isinstance(place, FilePlace):
            digest.update(repr(place).encode())
        elif tensor.nbytes <= SMALL_BYTES:
            digest.update(repr((tensor.dtype, tensor.shape, tensor.tolist())).encode())
        else:
            return None
    for key, given in features.items():
        feature = stored_rows(given)
        if not isinstance(feature, DiskBasedFeature):
            return None
        if is_encoded(given):
            arrays = {name: values.tolist() for name, values in given.arrays().items()}
            digest.update(repr((given.coding(), arrays)).encode())
        # The identity of a file and its modification time stand for its content.
        state = os.stat(feature.path)
        digest.update(repr((key, feature.path, state.st_ino, state.st_size, state.st_mtime_ns)).encode())
    return digest.hexdigest()


class PartitionWriter:
    """Writes the arrays of a partition to a new folder, those of parts by an executor, and collects their entries."""

    def __init__(
        self, writer: DatasetWriter, graph: GraphArrays, parts: torch.Tensor, num_parts: int, executor: Executor | None
    ) -> None:
        self.writer, self.graph, self.parts, self.num_parts, self.executor = writer, graph, parts, num_parts, executor
        self.folder = folder = writer.folder
        self.entries: dict[int | None, list[ArrayEntry]] = {part: [] for part in (None, *range(num_parts))}
        self.owners = folder / Target(None, "node_parts").path
        self.edge_numbers: Mapping[Any, int] = graph.edge_type_to_id or {None: 0}

    def run(self, name: str, tasks: Mapping[Target, FileTask], executor: Executor | None) -> None:
        with progress_bar(f"writing {name}", len(tasks), "file") as progress:
            named = {target.path.replace("/", "."): task for target, task in tasks.items()}
            results = run_tasks(self.folder, named, executor, lambda _: progress.update())
        for target, written in zip(tasks, results.values(), strict=True):
            self.entries[target.part] += map(parse_entry, written)

    def write(self, features: Mapping[FeatureKey, Feature]) -> None:
        """Write the edges and rows of each part, the arrays that all parts need, and the metadata."""
        self.check_rows(features)
        # A task, so that a resumed run gets the stamp of the existing files.
        stamp = run_tasks(self.folder, {"stamp": lambda _: new_stamp()})["stamp"]
        whole = {Target(None, "node_parts"): self.parts}
        if ORIGINAL_EDGE_ID not in self.graph.edge_attributes:
            whole[Target(None, "first_edges")] = self.graph.csc_indptr
        for number, (name, values) in enumerate(self.graph.node_attributes.items()):
            whole[Target(None, "node_attributes", (name,), number)] = values
        rows: dict[Target, FileTask] = {}
        for number, (key, given) in enumerate(features.items()):
            feature = stored_rows(given)
            if is_encoded(given):
                layout = torch.frombuffer(bytearray(json.dumps(given.coding()).encode()), dtype=torch.uint8)
                for name, values in {CODING: layout, **given.arrays()}.items():
                    whole[Target(None, "encoding", (*key, name), len(whole))] = values
            if key.domain == "graph":
                whole[Target(None, "feature", key, number)] = feature.read()
                continue
            for part in range(self.num_parts):
                target = Target(part, "feature", key, number)
                rows[target] = partial(write_part_rows, feature, self.rows_of(key, part), target)
        self.run("nodes", {target: partial(write_values, values, target) for target, values in whole.items()}, None)
        edges = {
            Target(part, "edges"): partial(write_part_edges, self.graph, self.owners, part, stamp)
            for part in range(self.num_parts)
        }
        self.run("edges", edges, self.executor)
        self.run("the parts of edges", self.edge_parts(features), self.executor)
        self.run("features", rows, self.executor)
        self.finish(stamp)

    def check_rows(self, features: Mapping[FeatureKey, Feature]) -> None:
        """Raise unless the graph has the types of the features, and each node or edge has a row in all of them."""
        node_types = to_type_dict(self.graph.num_nodes)
        counts = {("node", node_type): count for node_type, count in node_types.items()}
        for key, feature in features.items():
            types = [*node_types] if key.domain == "node" else list(self.edge_numbers)
            if key.domain != "graph" and key.type not in types:
                raise ValueError(f"a feature is of {key.domain} type {key.type!r}, but the graph has {types}")
            # All features of an edge type must have as many rows as the first.
            count = counts.setdefault((key.domain, key.type), feature.count())
            if key.domain != "graph" and feature.count() != count:
                raise ValueError(
                    f"feature {key} must have {count} rows, one for each {key.domain}, but has {feature.count()}"
                )

    def edge_parts(self, features: Mapping[FeatureKey, Feature]) -> dict[Target, FileTask]:
        tasks: dict[Target, FileTask] = {}
        for key, feature in features.items():
            if key.domain == "edge":
                number = self.edge_numbers[key.type]
                target = Target(None, "edge_parts", (key.type,), number)
                tasks[target] = partial(write_edge_parts, self.graph, self.owners, target, number, feature.count())
        return tasks

    def rows_of(self, key: FeatureKey, part: int) -> PartRows:
        if key.domain == "edge":
            number = self.edge_numbers[key.type]
            return PartRows(self.folder / Target(None, "edge_parts", (key.type,), number).path, (0, None), part)
        # One file has the parts of nodes of all types; those of edges are in one file per type.
        first, number = self.graph.first_ids(), [*to_type_dict(self.graph.num_nodes)].index(key.type)
        return PartRows(self.owners, (first[number], first[number + 1]), part)

    def finish(self, stamp: int) -> None:
        graph = self.graph
        numbers = None if graph.edge_type_to_id is None else dict(graph.edge_type_to_id)
        identity = write_identity(self.folder, self.num_parts)
        shared, *of_parts = self.entries.values()
        metadata = PartitionMetadata(graph.num_nodes, graph.num_edges, numbers, shared, of_parts, stamp, identity)
        folders = [self.folder, *(self.folder / part_folder(part) for part in range(self.num_parts))]
        tasks: dict[str, FileTask] = {
            f"checksums.{number}": partial(sum_arrays, self.folder, folder) for number, folder in enumerate(folders)
        }
        with progress_bar("computing checksums", len(tasks), "folder") as progress:
            found = run_tasks(self.folder, tasks, self.executor, lambda _: progress.update())
        checksums = {name: own for by_name in found.values() for name, own in by_name.items()}
        self.writer.finish(metadata.content(), FILE_NAME, checksums=checksums)
