"""Writes a partitioned graph in the layout of `torch_geometric.distributed`."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.distributed.edge_positions import edge_positions
from graphfeed.distributed.partition.part_layout import check_num_parts, features_by_key, write_identity
from graphfeed.distributed.pyg.partition_pyg_layout import BY_TYPE, EDGE_TIME, META, ORDER, TIME, meta_of
from graphfeed.distributed.pyg.store_attributes import by_group
from graphfeed.ops.arguments import checked, kind_of
from graphfeed.ops.process import progress_bar
from graphfeed.pyg.data import dim_of, domain_of, graph_of_data, is_data, tables_of
from graphfeed.storage import FeatureStore
from graphfeed.storage.datasets import check_new_folder, new_folder, write_text
from graphfeed.storage.graph import (
    ORIGINAL_EDGE_ID,
    ByType,
    FusedCSCSamplingGraph,
    assign_by_metis,
    assign_nodes,
    ends_of,
    stacked_assignment,
    to_type_dict,
    type_name,
)

Read: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""A function that returns the rows of nodes or edges, given their ids within their type."""


@dataclass(frozen=True)
class PartitionInput:
    """A graph, and functions that read the attributes of its nodes and edges, by type and name."""

    # In a graph without types, the type is None. The timestamps of edges are named "edge_time" here.
    graph: FusedCSCSamplingGraph
    nodes: dict[str | None, dict[str, Read]]
    edges: dict[str | None, dict[str, Read]]
    edge_time: str
    """The name of the edges' timestamps in the data."""
    edge_attributes: dict[str, torch.Tensor] = field(default_factory=dict)
    """Attributes of the graph, in the order of its edges."""

    def read_edges(
        self, edge_type: str | None, positions: torch.Tensor, ids: torch.Tensor, *names: str
    ) -> dict[str, torch.Tensor]:
        """Return rows of the edges' attributes; of all attributes, unless names are given."""
        # The graph's attributes are read by position in the graph, features by id within the type.
        rows = {name: values[positions] for name, values in self.edge_attributes.items() if name in (names or (name,))}
        reads = self.edges[edge_type]
        return rows | {name: read(ids) for name, read in reads.items() if name in (names or (name,))}


def source_of(data: Any) -> PartitionInput:
    """Convert a graph, a data set or PyG's data to a source."""
    if isinstance(data, FusedCSCSamplingGraph):
        return source_of_graph(data, None)
    if isinstance(getattr(data, "graph", None), FusedCSCSamplingGraph):
        return source_of_graph(data.graph, data.feature)
    if is_data(data) and getattr(data, "edge_index", ()) is not None:
        return source_of_pyg(data)
    raise TypeError(
        f"data must be a FusedCSCSamplingGraph, a data set with one, or PyG's Data or HeteroData with edge_index, but "
        f"is {kind_of(data)}"
    )


def source_of_graph(graph: FusedCSCSamplingGraph, features: FeatureStore | None) -> PartitionInput:
    """Convert a graph and features to a source."""
    graph = graph.to("cpu")
    ranges = zip(to_type_dict(graph.num_nodes), pairwise(graph.first_ids()), strict=True)
    nodes: dict[str | None, dict[str, Read]] = {
        node_type: {name: values[low:high].__getitem__ for name, values in graph.node_attributes.items()}
        for node_type, (low, high) in ranges
    }
    edges: dict[str | None, dict[str, Read]] = {edge_type: {} for edge_type in graph.edge_type_to_id or [None]}
    for (domain, of_type, name), feature in features_by_key(features).items():
        if domain in ("node", "edge"):
            (nodes if domain == "node" else edges)[of_type][name] = feature.read
    attributes = {name: values for name, values in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
    return PartitionInput(graph, nodes, edges, name_of_times(attributes), with_edge_time(attributes))


def source_of_pyg(data: Any) -> PartitionInput:
    tables, graph = tables_of(data), graph_of_data(data).graph
    nodes = {name: reads_of(data, table, name, "node") for name, table in tables.nodes.items()}
    edges = {type_name(name): reads_of(data, table, type_name(name), "edge") for name, table in tables.edges.items()}
    of_edges = {name: with_edge_time(reads) for name, reads in edges.items()}
    return PartitionInput(graph, nodes, of_edges, name_of_times(*edges.values()))


def reads_of(data: Any, table: Any, owner: str | None, domain: str) -> dict[str, Read]:
    tensors = {name: value for name, value in table.items() if isinstance(value, torch.Tensor)}
    own = {name: value for name, value in tensors.items() if domain_of(data, table, name, owner) == domain}
    # Other tensors, such as an `edge_label_index`, may have nodes or edges in another dimension.
    return {name: value.cpu().__getitem__ for name, value in own.items() if dim_of(data, table, name) == 0}


def name_of_times(*attributes: Mapping[str, Any]) -> str:
    names = {name for by_name in attributes for name in by_name}
    return TIME if TIME in names and EDGE_TIME not in names else EDGE_TIME


def with_edge_time(attributes: Mapping[str, Any]) -> dict[str, Any]:
    times = name_of_times(attributes)
    return {EDGE_TIME if name == times else name: values for name, values in attributes.items()}


class Partitioner:
    """Partitions a graph and writes it in the layout of PyG's class of that name.

    The folder has `META.json`, `node_map` and `edge_map` (the part of each node and of each edge), and for each part
    `graph.pt`, `node_feats.pt` and `edge_feats.pt`. `torch_geometric.distributed` can read them. So can `open_part`,
    which unpickles only tensors, and gives the mini-batches of the whole graph. An edge belongs to the part of its
    destination. Edges are sorted by destination, and by time if there are timestamps.

    Unlike PyG's class, it writes all attributes of nodes and edges to `feats`, such as labels, masks and weights. With
    types, all ids count within their type, also `global_id` and `edge_id`, as recorded in `ids` of `META.json`. A
    single part and empty parts are allowed. The folder must be empty or not exist; it is created atomically.

    Args:
        data: A `FusedCSCSamplingGraph`; a loaded `Dataset` or `OnDiskDataset`, with its features; or PyG's `Data` or
            `HeteroData` with `edge_index`. Timestamps are the attribute `time` of nodes, or `edge_time` or `time` of
            edges.
        recursive: Whether METIS uses recursive bisection instead of k-way partitioning.
        method: The method of `assign_nodes`, with the `seed`; or the part of each node, by node type if there are
            types.

    Example:
        >>> import tempfile
        >>> from graphfeed import from_coo
        >>> graph = from_coo(torch.tensor([[1, 2, 0], [0, 0, 1]]), num_nodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Partitioner(graph, 2, f"{folder}/parts", method="range").generate_partition()
        ...     torch.load(f"{folder}/parts/part_0/graph.pt")["edge_id"]
        tensor([0, 1, 2])
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_parts: int,
        root: str | os.PathLike[str],
        recursive: bool = False,
        *,
        method: str | ByType = "metis",
        seed: int = 0,
    ) -> None:
        check_num_parts(num_parts)
        self.data, self.num_parts, self.root, self.recursive = data, num_parts, root, recursive
        self.method, self.seed = method, seed

    def generate_partition(self) -> None:
        """Assign the nodes to parts, and write all files.

        Raises:
            FileExistsError: The folder is not empty, or can't be replaced, for example the working directory.
            ImportError: The method is "metis", and pymetis is not installed.
        """
        check_new_folder(Path(self.root))
        source = source_of(self.data)
        with new_folder(Path(self.root)) as folder:
            writer = LayoutWriter(folder, source, self.assign(source))
            with progress_bar("writing parts", self.num_parts, "part") as progress:
                for part in range(self.num_parts):
                    writer.write_part(part)
                    progress.update(1)
            writer.write_maps(self.num_parts)

    def assign(self, source: PartitionInput) -> torch.Tensor:
        """Return the part of each node."""
        if not isinstance(self.method, str):
            return stacked_assignment(source.graph, self.method, self.num_parts).to(torch.int64)
        if self.method == "metis":
            return assign_by_metis(source.graph, self.num_parts, self.seed, self.recursive or None).to(torch.int64)
        assignment = assign_nodes(source.graph, self.num_parts, self.method, self.seed)
        return stacked_assignment(source.graph, assignment, self.num_parts).to(torch.int64)


class LayoutWriter:
    """Writes the files of PyG's layout to a new folder."""

    def __init__(self, folder: Path, source: PartitionInput, parts: torch.Tensor) -> None:
        self.folder, self.source, self.parts = folder, source, parts
        graph = source.graph
        self.typed = graph.node_type_to_id is not None
        ranges = pairwise(graph.first_ids())
        self.ranges: dict[str | None, tuple[int, int]] = dict(zip(to_type_dict(graph.num_nodes), ranges, strict=True))
        """For each node type, the range of its ids in the graph."""
        edge_types: list[str | None] = [*graph.edge_types] if self.typed else [None]
        self.edge_ids: dict[str | None, list[torch.Tensor]] = {edge_type: [] for edge_type in edge_types}
        """For each edge type, the ids of the edges of each part that was written."""

    def write_part(self, part: int) -> None:
        """Write the files of a part."""
        nodes = (self.parts == part).nonzero().squeeze(1)
        pieces = list(edge_positions(self.source.graph.csc_indptr.numpy(), nodes.numpy()))
        positions = torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *pieces]))
        folder = self.folder / f"part_{part}"
        folder.mkdir()
        edges = {edge_type: self.edges_of(edge_type, positions) for edge_type in self.edge_ids}
        for edge_type, (own, _) in edges.items():
            self.edge_ids[edge_type].append(own["edge_id"])
        edge_feats = {edge_type: feats for edge_type, (_, feats) in edges.items() if feats}
        node_feats = {node_type: self.nodes_of(node_type, nodes) for node_type in self.ranges}
        save(by_group({edge_type: own for edge_type, (own, _) in edges.items()}), folder / "graph.pt")
        save(by_group(edge_feats), folder / "edge_feats.pt")
        save(by_group(node_feats), folder / "node_feats.pt")

    def edges_of(self, edge_type: str | None, positions: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the edges of a type among those at the given positions, and their attributes."""
        graph, (source, destination) = self.source.graph, ends_of(edge_type)
        if edge_type is not None:
            assert graph.type_per_edge is not None
            assert graph.edge_type_to_id is not None
            positions = positions[graph.type_per_edge[positions] == graph.edge_type_to_id[edge_type]]
        (low, high), (first, last) = self.ranges[source], self.ranges[destination]
        nodes = np.searchsorted(graph.csc_indptr.numpy(), positions.numpy(), side="right") - 1
        rows, columns = graph.indices[positions].long() - low, torch.from_numpy(nodes) - first
        ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
        ids = positions if ids is None else ids[positions].long()
        # The positions in the graph are needed only if sorting by id would not restore its order.
        with_order = bool((ids.diff()[columns.diff() == 0] <= 0).any())
        times = self.source.read_edges(edge_type, positions, ids, EDGE_TIME).get(EDGE_TIME)
        if times is None and TIME in self.source.nodes[source]:
            times = self.source.nodes[source][TIME](rows)
        if times is not None:
            # For temporal sampling, PyG needs the edges of a node in order of time.
            order = torch.from_numpy(np.lexsort((times.numpy(), columns.numpy())))
            positions, rows, columns, ids = positions[order], rows[order], columns[order], ids[order]
        edges = {"edge_id": ids, "row": rows, "col": columns, "size": (high - low, last - first)}
        if with_order:
            edges[ORDER] = positions
        feats = self.source.read_edges(edge_type, positions, ids)
        if not feats:
            return edges, {}
        time = {EDGE_TIME: feats.pop(EDGE_TIME)} if EDGE_TIME in feats else {}
        return edges, {"global_id": ids, "feats": feats, **time}

    def nodes_of(self, node_type: str | None, nodes: torch.Tensor) -> dict[str, Any]:
        """Return a part's nodes of one type and their attributes, but the timestamps of all nodes of the type."""
        first, last = self.ranges[node_type]
        ids = nodes[(nodes >= first) & (nodes < last)] - first
        attributes = dict(self.source.nodes[node_type])
        time = attributes.pop(TIME, None)
        file: dict[str, Any] = {"global_id": ids, "feats": {name: read(ids) for name, read in attributes.items()}}
        if self.typed:
            file["id"] = ids
        return file if time is None else {**file, TIME: time(torch.arange(last - first, device="cpu"))}

    def write_maps(self, num_parts: int) -> None:
        """Write the part of each node and edge, and the metadata."""
        maps = {
            "node_map": {node_type: self.parts[slice(*ids)].clone() for node_type, ids in self.ranges.items()},
            "edge_map": {name and name.replace(":", "__"): owners_of(ids) for name, ids in self.edge_ids.items()},
        }
        for name, by_type in maps.items():
            if self.typed:
                (self.folder / name).mkdir()
            for owner, parts in by_type.items():
                if set(owner or "") & set("/\\\0"):
                    raise ValueError(
                        f"type {owner!r} can't be the name of a file, which this layout needs; rename the type"
                    )
                path = f"{name}.pt" if owner is None else f"{name}/{owner}.pt"
                save(parts, self.folder / path)
        content = {
            **meta_of(num_parts, self.source.graph.num_nodes, self.source.graph.edge_types),
            "ids": BY_TYPE,
            "identity": write_identity(self.folder, num_parts),
            EDGE_TIME: self.source.edge_time,
        }
        write_text(self.folder / META, json.dumps(content))


def owners_of(ids: Sequence[torch.Tensor]) -> torch.Tensor:
    owners = torch.zeros(1 + max(int(own.max()) if len(own) else -1 for own in ids), dtype=torch.int64, device="cpu")
    for part, own in enumerate(ids):
        owners[own] = part
    return owners


def save(value: Any, path: Path) -> None:
    with path.open("xb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())
