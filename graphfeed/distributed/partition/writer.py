"""Writes a graph in parts, with its features, to a folder; see `part_layout`."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.edge_positions import edge_positions
from graphfeed.distributed.part_book import PartBook, smallest_dtype
from graphfeed.distributed.partition.halo import HaloFeatures, plan_halo
from graphfeed.distributed.partition.part_layout import (
    EDGE_PARTS,
    FEATURE,
    FILE_NAME,
    HALO_FEATURE,
    HALO_IDS,
    IDENTITY,
    NODE_PARTS,
    ArrayEntry,
    Key,
    PartitionMetadata,
    check_num_parts,
    column_files,
    features_by_key,
    file_dtype,
    part_folder,
    to_numpy,
)
from graphfeed.distributed.partition_identity import identify
from graphfeed.ops.process import progress_bar
from graphfeed.storage import Feature, FeatureKey, FeatureStore
from graphfeed.storage.datasets import PART_BYTES, ArrayWriter, check_new_folder, new_folder, write_text
from graphfeed.storage.features import row_type
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ByType, GraphArrays, stacked_assignment, to_type_dict
from graphfeed.storage.memory import new_stamp, stamp_file


def write_partition(
    root: str | os.PathLike[str],
    graph: GraphArrays,
    assignment: ByType,
    num_parts: int,
    features: FeatureStore | None = None,
    halo_features: HaloFeatures = 0,
) -> Path:
    """Write a graph in parts to a new folder, from which `open_part` maps them.

    A part holds the in-edges of its nodes in the order that they have in the graph, with the global ids of their
    sources and of themselves, their types and attributes, and the rows of the features of its nodes and edges. An edge
    belongs to the part of its destination. The attributes of nodes are kept once, for all parts.

    Graph and features are read piece by piece, so they may be mapped and larger than memory. The folder appears when
    all of it is on the disk; a failure leaves nothing.

    Args:
        root: The folder, which must not exist or be empty.
        graph: The whole graph.
        assignment: The part of each node, from `assign_nodes` for example; by node type if the graph has types.
        num_parts: The number of parts, of which some may be empty.
        features: The features of nodes by id, and of edges by the ids of sampled edges. Features of the graph are kept
            once, for all parts.
        halo_features: How many bytes of copies of rows each part may have at most, of the nodes of other parts that its
            in-edges come from most often. Ranks read copies rather than ask other machines; mini-batches stay the same,
            and the rows can't be updated. Or the ids of the nodes, for each part: those of `plan_halo`, which also
            tells what they save, or those of `read_graphlearn_caches`. 0 for no copies.

    Returns:
        The folder.

    Raises:
        FileExistsError: There is something in the folder, or it can't be replaced, such as the working folder.
        TypeError: The assignment is by type and the graph has no types, or the other way round.
        ValueError: The assignment doesn't have a part for each node, or a feature not a row; there are no features to
            copy; or there are more than 65,536 parts.
    """
    check_num_parts(num_parts)
    check_new_folder(Path(root))
    halo = None
    if isinstance(halo_features, Sequence) or halo_features != 0:
        halo = plan_halo(graph, assignment, num_parts, features, halo_features).ids
    parts = stacked_assignment(graph, assignment, num_parts).to(smallest_dtype(num_parts))
    graph.ensure_checked(whole=False)
    with new_folder(Path(root)) as unfinished:
        by_key = features_by_key(features)
        writer = PartitionWriter(unfinished, graph.to("cpu"), parts, num_parts)
        writer.write_graph({key.type: feature.count() for key, feature in by_key.items() if key.domain == "edge"})
        for key, feature in by_key.items():
            writer.write_feature(key, feature)
        if halo is not None:
            writer.write_halo(halo, features)
        writer.finish(by_key)
    return Path(root)


class PartitionWriter:
    """Writes the arrays of a partition, and lists them for its metadata.

    Args:
        folder: A new folder.
        graph: The whole graph.
        parts: The part of each node.
        num_parts: The number of parts.
    """

    def __init__(self, folder: Path, graph: GraphArrays, parts: torch.Tensor, num_parts: int) -> None:
        self.folder, self.graph, self.parts, self.num_parts = folder, graph, parts, num_parts
        self.shared: list[ArrayEntry] = []
        self.of_part: list[list[ArrayEntry]] = [[] for _ in range(num_parts)]
        self.edge_parts: dict[str | None, NDArray[Any]] = {}
        self.edge_arrays = {name: values for name, values in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}

    def write_graph(self, edge_rows: Mapping[str | None, int]) -> None:
        """Write the edges of each part, and what all parts need.

        Args:
            edge_rows: How many edges have features, by the edge types that have any.
        """
        self.write(None, NODE_PARTS, (), self.parts)
        for name, values in self.graph.node_attributes.items():
            self.write(None, "node_attributes", (name,), values)
        edge_types = list(self.graph.edge_type_to_id or [None])
        for edge_type, count in edge_rows.items():
            if edge_type not in edge_types:
                raise ValueError(f"a feature is of edge type {edge_type!r}, but the graph has {edge_types}")
            self.edge_parts[edge_type] = np.zeros(count, dtype=self.parts.numpy().dtype)
        with progress_bar("writing edges", self.graph.total_num_edges, "edge") as progress:
            for part in range(self.num_parts):
                (self.folder / part_folder(part)).mkdir()
                self.write_edges(part, progress.update)
        for edge_type, owners in self.edge_parts.items():
            self.write(None, EDGE_PARTS, (edge_type,), torch.from_numpy(owners))

    def write_edges(self, part: int, progress: Callable[[int], object]) -> None:
        """Write the in-edges of a part's nodes."""
        indptr = self.graph.csc_indptr.numpy()
        own = np.flatnonzero(self.parts.numpy() == part)
        starts = np.zeros(indptr.size, dtype=indptr.dtype)
        starts[own + 1] = indptr[own + 1] - indptr[own]
        np.cumsum(starts, out=starts)
        count = int(starts[-1])
        self.write(part, "csc_indptr", (), torch.from_numpy(starts))
        arrays: list[tuple[str, Key, torch.Tensor | None]] = [("indices", (), self.graph.indices)]
        if self.graph.type_per_edge is not None:
            arrays.append(("type_per_edge", (), self.graph.type_per_edge))
        arrays += [("edge_attributes", (name,), values) for name, values in self.edge_arrays.items()]
        # Without ids of their own, edges are known by their positions.
        arrays.append(("edge_attributes", (ORIGINAL_EDGE_ID,), self.graph.edge_attributes.get(ORIGINAL_EDGE_ID)))
        with ExitStack() as stack:
            writers = []
            for role, key, values in arrays:
                dtype, row = (torch.int64, ()) if values is None else (values.dtype, tuple(values.shape[1:]))
                path = self.add(part, role, key, dtype, (count, *row))
                writers.append(stack.enter_context(ArrayWriter(path, (count, *row), file_dtype(dtype))))
            for positions in edge_positions(indptr, own):
                for writer, (_, _, values) in zip(writers, arrays, strict=True):
                    writer.append(positions if values is None else to_numpy(values)[positions])
                self.note_edges(part, positions)
                progress(positions.size)

    def note_edges(self, part: int, positions: NDArray[np.int64]) -> None:
        """Store the part of some edges by their ids, for edge types with features."""
        ids, types = self.graph.edge_attributes.get(ORIGINAL_EDGE_ID), self.graph.type_per_edge
        for edge_type, owners in self.edge_parts.items():
            of_type = positions
            if types is not None and self.graph.edge_type_to_id is not None and edge_type is not None:
                of_type = positions[types.numpy()[positions] == self.graph.edge_type_to_id[edge_type]]
            edges = of_type if ids is None else ids.numpy()[of_type]
            if edges.size and int(edges.max()) >= owners.size:
                raise ValueError(
                    f"features of edge type {edge_type!r} have {owners.size} rows, but there is an edge {edges.max()}"
                )
            owners[edges] = part

    def write_feature(self, key: FeatureKey, feature: Feature) -> None:
        """Write the rows that each part owns."""
        if key.domain == "graph":
            self.write(None, FEATURE, key, feature.read())
            return
        if key.domain == "node":
            node_types, first = list(to_type_dict(self.graph.num_nodes)), self.graph.first_ids()
            if key.type not in node_types:
                raise ValueError(f"a feature is of node type {key.type!r}, but the graph has {node_types}")
            number = node_types.index(key.type)
            owners = self.parts.numpy()[first[number] : first[number + 1]]
        else:
            owners = self.edge_parts[key.type]
        if feature.count() != owners.size:
            raise ValueError(
                f"feature {key} must have {owners.size} rows, one for each {key.domain}, but has {feature.count()}"
            )
        ids = (torch.from_numpy(np.flatnonzero(owners == part)) for part in range(self.num_parts))
        self.write_rows(FEATURE, key, feature, ids, feature.count())

    def write_halo(self, halo: Sequence[ByType], features: FeatureStore | None) -> None:
        """Write copies of rows of other parts; for a part without any too, as others may have copies of its rows."""
        of_nodes, copied = features_by_key(features, "node"), [to_type_dict(ids) for ids in halo]
        for node_type in dict.fromkeys(key.type for key in of_nodes):
            for part, ids in enumerate(copied):
                self.write(part, HALO_IDS, (node_type,), ids[node_type])
        for key, feature in of_nodes.items():
            of_type = [ids[key.type] for ids in copied]
            self.write_rows(HALO_FEATURE, key, feature, of_type, sum(map(len, of_type)))

    def write_rows(
        self, role: str, key: FeatureKey, feature: Feature, ids_by_part: Iterable[torch.Tensor], total: int
    ) -> None:
        """Write some rows of a feature for each part, piece by piece."""
        dtype, row = row_type(feature), tuple(feature.size())
        step = max(PART_BYTES // max(int(np.prod(row)) * dtype.itemsize, 1), 1)
        with progress_bar(f"writing {key.name}", total, "row") as progress:
            for part, ids in enumerate(ids_by_part):
                path = self.add(part, role, key, dtype, (len(ids), *row))
                with ArrayWriter(path, (len(ids), *row), file_dtype(dtype)) as writer:
                    for some in torch.split(ids, step):
                        writer.append(to_numpy(feature.read(some).cpu()))
                        progress.update(len(some))

    def finish(self, features: Mapping[FeatureKey, Feature]) -> None:
        """Write the metadata, and the identity beside each part."""
        graph = self.graph
        numbers = None if graph.edge_type_to_id is None else dict(graph.edge_type_to_id)
        stamp = new_stamp()
        for name in column_files(chain(*self.of_part)):
            stamp_file(self.folder / name, stamp)
        identity = identify(graph, PartBook.from_assignment(self.parts, self.num_parts), features, stamp)
        for part in range(self.num_parts):
            write_text(self.folder / part_folder(part) / IDENTITY, f"{identity}\n")
        metadata = PartitionMetadata(
            graph.num_nodes, graph.num_edges, numbers, self.shared, self.of_part, stamp, identity
        )
        write_text(self.folder / FILE_NAME, metadata.to_json())

    def write(self, part: int | None, role: str, key: Key, values: torch.Tensor) -> None:
        """Write an array of a part; None: one that all parts need."""
        values = values.cpu()
        path = self.add(part, role, key, values.dtype, tuple(values.shape))
        with ArrayWriter(path, tuple(values.shape), file_dtype(values.dtype)) as writer:
            writer.append(to_numpy(values))

    def add(self, part: int | None, role: str, key: Key, dtype: torch.dtype, shape: tuple[int, ...]) -> Path:
        """List an array in the metadata, and return its path: numbered, as file systems may not take every name."""
        folder, entries = ("", self.shared) if part is None else (f"{part_folder(part)}/", self.of_part[part])
        path = f"{folder}{role}_{len(entries)}.npy" if key else f"{folder}{role}.npy"
        entries.append(ArrayEntry(path, role, key, str(dtype).removeprefix("torch."), shape))
        return self.folder / path
