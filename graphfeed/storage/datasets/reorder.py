"""Writes a data set again with its nodes in another order, so that what is read together shares pages of the files."""

import argparse
import copy
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.arguments import brief, check_ids, parse_bytes
from graphfeed.ops.process import progress_bar
from graphfeed.storage.datasets.array_files import ArrayWriter, open_array, write_array, write_text
from graphfeed.storage.datasets.edge_sorting import PART_EDGES, EdgeArray, Edges, Sorting, memory_for_sorting
from graphfeed.storage.datasets.folder_writing import check_new_folder, new_folder
from graphfeed.storage.datasets.metadata import FILE_NAME, SETS, stay_inside
from graphfeed.storage.datasets.on_disk_dataset import OnDiskDataset, open_in_files
from graphfeed.storage.datasets.original_ids import write_reordered_ids
from graphfeed.storage.datasets.preprocess import LAYOUT
from graphfeed.storage.datasets.processed_arrays import LEGACY_NAMES, SEEDS
from graphfeed.storage.datasets.processed_graph import GRAPH_FOLDER, PROCESSED, check_rows, id_dtype, write_edges
from graphfeed.storage.features.disk_based_feature import DiskBasedFeature
from graphfeed.storage.features.feature import Feature, row_type
from graphfeed.storage.graph.assign import assign_nodes
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.type_names import NodeType, ends_of, to_type_dict

ORDERS = ("part", "met")
"""The names of the orders."""
PART_NODES = 256
"""How many nodes a part has. With rows of 128 bytes these take eight pages."""
BLOCK = 1 << 20
"""How many ids of nodes are read at a time."""


def reorder_dataset(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], by: str = "part", *, memory: int | None = None
) -> OnDiskDataset:
    """Write a data set again with its nodes in another order, so that what is read together shares pages of the files.

    Rows, edges and seeds are those of the same nodes, under other ids: `dataset.ids(node_type)` of the result has the
    ids from before, or those of the tables if the data set was made of tables. Edges keep their ids if they have
    features. What is larger than memory is read in the order of the files, and memory holds some 50 bytes per node. The
    folder, which must be new or empty, appears when everything is on the disk. A data set without a graph, and items
    that hold ids of nodes under former names, are a ValueError.

    Args:
        by: "part" puts nodes together that have edges to each other, by the method "ldg" of `assign_nodes`. "met" puts
            the sources of the most edges first, which suits graphs where these have no more in-edges than others. Nodes
            of a type stay together.
        memory: How many bytes edges and rows may take while they are sorted; by default a quarter of the memory.
    """
    if by not in ORDERS:
        raise ValueError(f"by must be one of {list(ORDERS)}, but is {by!r}")
    check_new_folder(Path(folder))
    dataset = open_in_files(source).load()
    if dataset.graph is None:
        raise ValueError(f"the data set in {source} has no graph")
    order = order_nodes(dataset.graph, by)
    with new_folder(Path(folder)) as unfinished:
        writer = Reordering(Path(source).resolve(), dataset, order, unfinished / PROCESSED)
        writer.write(memory_for_sorting() if memory is None else memory)
    return OnDiskDataset(folder)


def order_nodes(graph: GraphArrays, by: str) -> NDArray[np.int64]:
    """Return the ids of a graph's nodes in another order, type after type."""
    if by == "part":
        # Neighbours come side by side.
        parts = to_type_dict(assign_nodes(graph, max(1, graph.total_num_nodes // PART_NODES)))
        keys: list[NDArray[Any]] = [own.numpy() for own in parts.values()]
    else:
        # What is the source of most edges, and so is read most often, comes first.
        met = torch.zeros(graph.total_num_nodes, dtype=torch.int64)
        with progress_bar("counting sources", graph.total_num_edges, "edge") as progress:
            for sources in torch.split(graph.indices, PART_EDGES):
                ops.count_edges(sources, met)
                progress.update(len(sources))
        keys = [-met.numpy()[low:high] for low, high in pairwise(graph.first_ids())]
    # Stable: what the order from before has put together stays so.
    return np.concatenate([low + key.argsort(kind="stable") for low, key in zip(graph.first_ids(), keys, strict=False)])


@dataclass(frozen=True)
class StoredEdges(Edges):
    """The edges of one type of a graph, which may be mapped, with the ids that their ends get."""

    graph: GraphArrays
    new_ids: NDArray[np.int64]
    count: int
    attributes: dict[str, NDArray[Any]]
    """The arrays of edge attributes by the name of their column."""

    def __len__(self) -> int:
        return self.count

    def parts(self, _first: int, _last: int, /) -> Iterator[NDArray[np.int64]]:
        types = self.graph.type_per_edge
        # The edges of a range of new ids lie anywhere, so all are read.
        for start in range(0, self.graph.total_num_edges, PART_EDGES):
            positions = np.arange(start, min(start + PART_EDGES, self.graph.total_num_edges))
            yield positions if types is None else positions[types.numpy()[positions] == self.number]

    def column(self, name: str, part: NDArray[np.int64]) -> NDArray[Any]:
        """Return some rows of a column; sources and destinations are new ids in the whole graph."""
        if name == "position":
            return part
        if name == "source":
            rows = self.new_ids[self.graph.indices.numpy()[part]]
        # The column that a position lies in.
        elif name == "destination":
            rows = self.new_ids[np.searchsorted(self.graph.csc_indptr.numpy(), part, side="right") - 1]
        else:
            rows = self.attributes[name][part]
        return np.asarray(rows)


class Reordering:
    """Writes the files of a data set in another order."""

    def __init__(self, source: Path, dataset: OnDiskDataset, order: NDArray[np.int64], target: Path) -> None:
        self.source, self.dataset, self.target, self.order = source, dataset, target, order
        self.graph: GraphArrays = dataset.graph
        # The inverse: by former id, the new one.
        self.new_ids = np.empty_like(order)
        self.new_ids[order] = np.arange(len(order))
        types = zip(to_type_dict(self.graph.num_nodes), pairwise(self.graph.first_ids()), strict=True)
        self.bounds: dict[NodeType, tuple[int, int]] = dict(types)
        self.files = 0

    def write(self, memory: int) -> None:
        (self.target / GRAPH_FOLDER).mkdir(parents=True)
        # A copy, since entries are changed in place.
        old = copy.deepcopy(self.dataset.yaml_data)
        auto_cast = bool(old.get("auto_cast_to_optimal_dtype", True))
        # Features of edges have the rows of the edge lists, so edges keep their ids.
        edge_rows = any(entry["domain"] == "edge" for entry in old.get("feature_data") or ())
        topology = self.write_graph(auto_cast, edge_rows or ORIGINAL_EDGE_ID in self.graph.edge_attributes, memory)
        new = {
            "layout": LAYOUT,
            "include_original_edge_id": ORIGINAL_EDGE_ID in topology["edge_attributes"],
            "auto_cast_to_optimal_dtype": auto_cast,
            "graph_topology": topology | {"in_memory": False},
            "feature_data": [self.write_feature(entry, memory) for entry in old.get("feature_data") or ()],
            "tasks": [self.write_task(number, task) for number, task in enumerate(old.get("tasks") or ())],
            "ids": {
                node_type or "": self.named(
                    write_reordered_ids(self.target, f"ids_{number}", self.dataset.ids(node_type), self.of(node_type))
                )
                for number, node_type in enumerate(self.bounds)
            },
        }
        # What it was made of is no longer what it says.
        gone = ("sources", "checksums")
        kept = {name: value for name, value in old.items() if name not in gone}
        write_text(self.target / FILE_NAME, yaml.safe_dump(kept | new, sort_keys=False))

    def of(self, node_type: NodeType) -> NDArray[np.int64]:
        """Return the former ids of the nodes of a type, in their new order."""
        low, high = self.bounds[node_type]
        return self.order[low:high] - low

    def write_graph(self, auto_cast: bool, with_edge_ids: bool, memory: int) -> dict[str, Any]:
        graph, folder = self.graph, self.target / GRAPH_FOLDER
        arrays, attributes = {}, {}
        for number, (name, values) in enumerate(graph.edge_attributes.items()):
            column, array = f"edge_{number}", values.numpy()
            attributes[column] = array
            arrays[name] = EdgeArray(folder / f"{column}.npy", column, array.dtype, array.shape[1:])
        # The graph's edges had no ids but their positions.
        if with_edge_ids and ORIGINAL_EDGE_ID not in arrays:
            dtype = id_dtype(graph.total_num_edges, auto_cast)
            arrays[ORIGINAL_EDGE_ID] = EdgeArray(folder / "edge_id.npy", "position", dtype)
        numbers = graph.edge_type_to_id or {None: 0}
        # Their ends are ids in the whole graph already: nothing is added to them.
        edges = [
            StoredEdges(edge_type, numbers[edge_type], (0, 0), graph, self.new_ids, count, attributes)
            for edge_type, count in sorted(to_type_dict(graph.num_edges).items(), key=lambda item: numbers[item[0]])
        ]
        bar = partial(progress_bar, unit="edge")
        topology = write_edges(folder, edges, to_type_dict(graph.num_nodes), arrays, auto_cast, Sorting(memory), bar)
        topology["node_attributes"] = {}
        for number, (name, values) in enumerate(graph.node_attributes.items()):
            file = topology["node_attributes"][name] = f"node_{number}.npy"
            with ArrayWriter(folder / file, values.shape, values.numpy().dtype) as writer:
                for ids in split(self.order):
                    writer.append(values.numpy()[ids])
        return topology

    def write_feature(self, entry: dict[str, Any], memory: int) -> dict[str, Any]:
        if entry["domain"] != "node":
            # Rows of edges and of the graph stay in their order.
            return self.copied(entry, "feature_data")
        path = self.new_file("feature")
        feature = self.dataset.feature["node", entry.get("type"), entry["name"]]
        order = self.of(entry.get("type"))
        check_rows(f"feature_data {entry['name']!r}", np.empty((feature.count(), 0)), len(order))
        write_rows(path, feature, torch.from_numpy(order), memory)
        return entry | self.named({"path": path.name}) | {"format": "numpy"}

    def write_task(self, number: int, task: dict[str, Any]) -> dict[str, Any]:
        for part in SETS:
            for items in task.get(part) or ():
                key = f"tasks[{number}].{part}"
                names = [member.get("name") for member in items["data"]]
                if not {SEEDS, *LEGACY_NAMES} & set(names):
                    raise ValueError(
                        f"{key} has no member named {SEEDS!r}, whose ids are to change, but {brief(names)}"
                    )
                items["data"] = [self.write_member(member, items.get("type"), key) for member in items["data"]]
        return task

    def write_member(self, entry: dict[str, Any], of_type: str | None, key: str) -> dict[str, Any]:
        name = entry.get("name")
        if name in LEGACY_NAMES:
            raise ValueError(f"{key} has {name}, a name that ids of nodes had in GraphBolt's first releases; use seeds")
        if name != SEEDS:
            return self.copied(entry, key)
        # A new id may not fit into the dtype of the seeds.
        seeds, path = self.open(entry, key), self.new_file("items")
        dtype = np.promote_types(seeds.dtype, np.min_scalar_type(len(self.order)))
        with ArrayWriter(path, seeds.shape, dtype) as writer:
            for start in range(0, len(seeds), BLOCK):
                writer.append(self.renumbered(seeds[start : start + BLOCK], of_type, key))
        return entry | self.named({"path": path.name}) | {"format": "numpy"}

    def renumbered(self, seeds: NDArray[Any], of_type: str | None, key: str) -> NDArray[Any]:
        """Return the new ids of seeds: of nodes, or of the two ends of edges."""
        if of_type not in self.bounds:
            columns = zip(ends_of(of_type), seeds.T, strict=True)
            return np.stack([self.renumbered(column, end, key) for end, column in columns], axis=1)
        low, high = self.bounds[of_type]
        check_ids(key, torch.from_numpy(seeds.astype(np.int64).reshape(-1)), high - low)
        ids: NDArray[Any] = self.new_ids[low:high][seeds] - low
        return ids

    def copied(self, entry: dict[str, Any], key: str) -> dict[str, Any]:
        path = self.new_file("copy")
        write_array(path, self.open(entry, key))
        return entry | self.named({"path": path.name}) | {"format": "numpy"}

    def open(self, entry: Mapping[str, Any], key: str) -> NDArray[Any]:
        return open_array(stay_inside(self.source, entry["path"], key), entry["format"], key)

    def new_file(self, prefix: str) -> Path:
        self.files += 1
        return self.target / f"{prefix}_{self.files}.npy"

    def named(self, files: Mapping[str, str]) -> dict[str, str]:
        # With the folder, as the metadata has them.
        return {key: f"{PROCESSED}/{name}" for key, name in files.items()}


def split(ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [ids[start : start + BLOCK] for start in range(0, len(ids), BLOCK)]


def write_rows(path: Path, feature: Feature, order: torch.Tensor, memory: int) -> None:
    """Write the rows of a feature in an order: as many at a time as fit into memory, read in the order of the file."""
    dtype, row = row_type(feature), tuple(feature.size())
    row_bytes = max(1, torch.empty(row, dtype=dtype).nbytes)
    with (
        ArrayWriter(path, (len(order), *row), torch.empty(0, dtype=dtype).numpy().dtype) as writer,
        progress_bar(f"writing {path.name}", len(order), "row") as progress,
    ):
        for ids in torch.split(order, max(1, memory // row_bytes)):
            if isinstance(feature, DiskBasedFeature) and feature.row_bytes:
                # Each part is read in the order of the file.
                ascending, positions = ids.sort()
                rows = torch.empty((len(ids), *row), dtype=dtype)
                feature.join(feature.begin_reading(ascending, rows, positions))
            else:
                rows = feature.read(ids)
            writer.append(rows.numpy())
            progress.update(len(ids))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="the folder of an OnDiskDataset")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write; new or empty")
    parser.add_argument(
        "--by",
        choices=ORDERS,
        default="part",
        help="put neighbours together, or first what is the source of most edges (default: %(default)s)",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="what edges and rows may take while they are sorted, such as 4G (default: a quarter of the memory)",
    )


def run(options: Any) -> None:
    memory = None if options.memory is None else parse_bytes("--memory", options.memory)
    reorder_dataset(options.source, options.output, options.by, memory=memory)
    sys.stdout.write(f"wrote {options.output}; its `ids` are those that nodes had before\n")
