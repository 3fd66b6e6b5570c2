"""What is written of a partition one after the other: each task's files are a function of the graph and of a part."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.edge_positions import edge_destinations, edge_positions
from graphfeed.distributed.partition.part_layout import ArrayEntry, Key, column_files, file_dtype, part_folder, to_numpy
from graphfeed.storage import Feature
from graphfeed.storage.datasets import PART_BYTES, ArrayWriter
from graphfeed.storage.features import row_type
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, GraphArrays
from graphfeed.storage.memory import map_npy, stamp_file

BLOCK_NODES = 1 << 20
"""How many nodes, or owners of edges, are looked at at a time."""
Entries: TypeAlias = list[dict[str, Any]]
"""What a task has written: the fields of an `ArrayEntry` for each array."""


class Target(NamedTuple):
    """Which array of a partition a task writes."""

    part: int | None
    """None: one that all parts need."""
    role: str
    key: Key = ()
    number: int = 0
    """Tells arrays with keys apart in the names of files, as file systems may not take every name."""

    @property
    def path(self) -> str:
        folder = "" if self.part is None else f"{part_folder(self.part)}/"
        return f"{folder}{self.role}_{self.number}.npy" if self.key else f"{folder}{self.role}.npy"

    def open(self, folder: Path, dtype: torch.dtype, row: Sequence[int]) -> ArrayWriter:
        path = folder / self.path
        path.parent.mkdir(exist_ok=True)
        return ArrayWriter(path, (None, *row), file_dtype(dtype))  # as many rows as come

    def describe(self, dtype: torch.dtype, shape: Sequence[int]) -> dict[str, Any]:
        return asdict(ArrayEntry(self.path, self.role, self.key, str(dtype).removeprefix("torch."), tuple(shape)))


class Rows(NamedTuple):
    """Which rows of a feature a part has: those that it owns, or those that a file lists."""

    file: Path
    """The owner of each row, or the ids of the rows."""
    bounds: tuple[int, int | None]
    """Which values of the file are about this feature."""
    part: int | None
    """The owner; None: the file has ids."""

    def pieces(self, most: int) -> Iterator[torch.Tensor]:
        """Yield the ids of the rows, ascending, at most so many at a time."""
        values = map_npy(self.file)[slice(*self.bounds)]
        for low in range(0, len(values), BLOCK_NODES):
            some = values[low : low + BLOCK_NODES]
            ids = np.array(some) if self.part is None else low + np.flatnonzero(some == self.part)
            if ids.size:
                yield from torch.split(torch.from_numpy(ids), most)


def write_values(values: torch.Tensor, target: Target, folder: Path) -> Entries:
    values = values.cpu()
    with target.open(folder, values.dtype, values.shape[1:]) as writer:
        writer.append(to_numpy(values))
    return [target.describe(values.dtype, values.shape)]


def write_edges(graph: GraphArrays, node_parts: Path, part: int, stamp: int, folder: Path) -> Entries:
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
        for low in range(0, parts.size, BLOCK_NODES):
            owned = parts[low : low + BLOCK_NODES] == part
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
    """Write the part of each edge of a type by its id."""
    # The target's key is the type, and `number` its number; features of the type have `count` rows.
    parts: NDArray[Any] = map_npy(node_parts)
    ids, types = graph.edge_attributes.get(ORIGINAL_EDGE_ID), graph.type_per_edge
    # Zeros take no room until they are written to, and pages of a file no memory for long.
    owners = np.lib.format.open_memmap(folder / target.path, "w+", parts.dtype, (count,))
    for edges, destinations in edge_destinations(graph.csc_indptr.numpy()):
        own = slice(None) if types is None else types[edges].numpy() == number
        some = (np.arange(edges.start, edges.stop) if ids is None else ids[edges].numpy())[own]
        if some.size and int(some.max()) >= count:
            raise ValueError(
                f"features of edge type {target.key[0]!r} have {count} rows, but there is an edge {some.max()}"
            )
        owners[some] = parts[destinations[own]]
    owners.flush()
    return [target.describe(torch.from_numpy(owners[:0]).dtype, (count,))]


def write_rows(feature: Feature, rows: Rows, target: Target, folder: Path) -> Entries:
    dtype, row = row_type(feature), tuple(feature.size())
    # How many rows take about so many bytes; one may take more.
    step = max(PART_BYTES // max(prod(row) * dtype.itemsize, 1), 1)
    with target.open(folder, dtype, row) as writer:
        for ids in rows.pieces(step):
            writer.append(to_numpy(feature.read(ids).cpu()))
    return [target.describe(dtype, (writer.rows, *row))]
