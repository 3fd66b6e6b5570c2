"""Writes a graph in parts in the layout of `torch_geometric.distributed`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.edge_positions import edge_positions
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.distributed.partition.source import EDGE_TIME, TIME, Source, source_of
from graphfeed.distributed.pyg.partition_pyg_layout import BY_TYPE, META, ORDER
from graphfeed.ops.process import progress_bar
from graphfeed.storage.datasets import check_new_folder, new_folder, write_text
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, ByType, assign_by_metis, assign_nodes, ends_of, stacked_assignment

EdgeType: TypeAlias = tuple[str, str, str]


class Partitioner:
    """Partitions a graph and writes it in the layout of PyG's class of that name.

    The folder has `META.json`, `node_map` and `edge_map` (the part of each node and of each edge), and for each part
    `graph.pt`, `node_feats.pt` and `edge_feats.pt`. `torch_geometric.distributed` reads them, and so does `open_part`,
    without unpickling. An edge belongs to the part of its destination. Edges are sorted by destination, and by time if
    there are times; `open_part` gives them in the order that they have in the graph, so that mini-batches are the same.
    Where edge ids don't ascend, `graph.pt` has the positions in the graph in `order` for this.

    It differs from PyG's class where that is broken. `feats` has all attributes of nodes and edges, such as labels,
    masks and weights, not only `x` and `edge_attr`. With types, all ids count within their type, also `global_id` and
    `edge_id`, which PyG numbers through all types and then reads as if it did not; `META.json` says so in `ids`. One
    part is possible, and so are empty ones. The folder must not exist or be empty; it appears as a whole or not at all.

    Args:
        data: A `FusedCSCSamplingGraph`; a `Dataset` or an `OnDiskDataset` that was loaded, with its features; or PyG's
            `Data` or `HeteroData` with `edge_index`. Times are the attribute `time` of nodes, or `edge_time` or `time`
            of edges.
        num_parts: The number of parts.
        root: The folder to write to.
        recursive: Whether METIS bisects again and again, rather than to make all parts at once.
        method: How nodes are assigned, as in `assign_nodes`; or the part of each node, by node type if there are types.
        seed: The seed of the method.

    Example:
        >>> import tempfile
        >>> from graphfeed import from_coo
        >>> graph = from_coo(torch.tensor([[1, 2, 0], [0, 0, 1]]), num_nodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Partitioner(graph, 2, f"{folder}/parts", method="range").generate_partition()
        ...     torch.load(f"{folder}/parts/part_0/graph.pt")["edge_id"]
        tensor([0, 1, 2])
    """

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
            FileExistsError: There is something in the folder, or it can't be replaced, such as the working folder.
            ImportError: The method is "metis", and pymetis is not installed.
            TypeError: The data is none of those that can be partitioned.
        """
        check_new_folder(Path(self.root))
        source = source_of(self.data)
        parts = self.assign(source)
        with new_folder(Path(self.root)) as folder:
            writer = LayoutWriter(folder, source, parts.numpy())
            with progress_bar("writing parts", self.num_parts, "part") as progress:
                for part in range(self.num_parts):
                    writer.write_part(part)
                    progress.update(1)
            writer.write_maps(self.num_parts)

    def assign(self, source: Source) -> torch.Tensor:
        """Return the part of each node."""
        if not isinstance(self.method, str):
            return stacked_assignment(source.graph, self.method, self.num_parts).to(torch.int64)
        if self.method == "metis":
            return assign_by_metis(source.graph, self.num_parts, self.seed, self.recursive or None).to(torch.int64)
        assignment = assign_nodes(source.graph, self.num_parts, self.method, self.seed)
        return stacked_assignment(source.graph, assignment, self.num_parts).to(torch.int64)


class LayoutWriter:
    """Writes the files of PyG's layout.

    Args:
        folder: A new folder.
        source: The graph and its attributes.
        parts: The part of each node.
    """

    def __init__(self, folder: Path, source: Source, parts: NDArray[np.int64]) -> None:
        self.folder, self.source, self.parts = folder, source, parts
        graph = source.graph
        self.typed = graph.node_type_to_id is not None
        self.offsets = graph.first_ids()
        self.node_types: list[str | None] = [*graph.num_nodes] if isinstance(graph.num_nodes, dict) else [None]
        self.edge_types: list[str | None] = [*graph.edge_types] if self.typed else [None]
        ids = graph.edge_attributes.get(ORIGINAL_EDGE_ID)
        self.edge_ids = None if ids is None else ids.numpy()
        nothing = np.zeros(0, dtype=np.int64)
        self.edge_maps: dict[str | None, NDArray[np.int64]] = dict.fromkeys(self.edge_types, nothing)

    def write_part(self, part: int) -> None:
        """Write the files of a part."""
        own = np.flatnonzero(self.parts == part)
        pieces = list(edge_positions(self.source.graph.csc_indptr.numpy(), own))
        positions = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
        place = self.folder / f"part_{part}"
        place.mkdir()
        edges = {kind: self.edges_of(kind, part, positions) for kind in self.edge_types}
        nodes = {kind: self.nodes_of(number, own) for number, kind in enumerate(self.node_types)}
        save(self.by_type({kind: graph for kind, (graph, _) in edges.items()}), place / "graph.pt")
        save(self.by_type({kind: rows for kind, (_, rows) in edges.items() if rows}), place / "edge_feats.pt")
        save(self.by_type(nodes), place / "node_feats.pt")

    def by_type(self, values: Mapping[str | None, Any]) -> Any:
        """Return values by type as they lie in a file: edge types as tuples, and without types the only value."""
        if not self.typed:
            return values.get(None, {})
        return {
            kind if kind in self.node_types else tuple(str(kind).split(":")): value for kind, value in values.items()
        }

    def edges_of(
        self, kind: str | None, part: int, positions: NDArray[np.int64]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the edges of a type, and their attributes."""
        graph = self.source.graph
        ends = ends_of(kind)
        if kind is not None:
            assert graph.type_per_edge is not None
            assert graph.edge_type_to_id is not None
            positions = positions[graph.type_per_edge.numpy()[positions] == graph.edge_type_to_id[kind]]
        (low, high), (first, last) = (self.range_of(end) for end in ends)
        columns = np.searchsorted(graph.csc_indptr.numpy(), positions, side="right") - 1 - first
        rows = graph.indices.numpy()[positions].astype(np.int64) - low
        ids = positions if self.edge_ids is None else self.edge_ids[positions].astype(np.int64)
        reads, node_reads = self.source.edges[kind], self.source.nodes[ends[0]]
        in_column = np.diff(columns) == 0
        with_order = bool((np.diff(ids)[in_column] <= 0).any())
        times = None
        if EDGE_TIME in reads:
            times = reads[EDGE_TIME](torch.from_numpy(positions), torch.from_numpy(ids))
        elif TIME in node_reads:
            times = node_reads[TIME](torch.from_numpy(rows))
        if times is not None:
            order = np.lexsort((times.numpy(), columns))
            positions, rows, columns, ids = positions[order], rows[order], columns[order], ids[order]
        self.note_edges(kind, ids, part)
        places, numbers = torch.from_numpy(positions), torch.from_numpy(ids)
        sizes = (high - low, last - first)
        edges = {"edge_id": numbers, "row": torch.from_numpy(rows), "col": torch.from_numpy(columns), "size": sizes}
        if with_order:
            edges[ORDER] = places
        feats = {name: read(places, numbers) for name, read in reads.items()}
        if not feats:
            return edges, {}
        time = {EDGE_TIME: feats.pop(EDGE_TIME)} if EDGE_TIME in feats else {}
        return edges, {"global_id": numbers, "feats": feats, **time}

    def note_edges(self, kind: str | None, ids: NDArray[np.int64], part: int) -> None:
        """Note the part of some edges; an id that no edge has belongs to part 0."""
        known = self.edge_maps[kind]
        missing = int(ids.max(initial=-1)) + 1 - known.size
        if missing > 0:
            known = self.edge_maps[kind] = np.concatenate([known, np.zeros(missing, dtype=np.int64)])
        known[ids] = part

    def nodes_of(self, number: int, own: NDArray[np.int64]) -> dict[str, Any]:
        """Return the nodes of a type that a part owns, and their attributes; of times, those of all nodes."""
        first, last = self.offsets[number], self.offsets[number + 1]
        ids = torch.from_numpy(own[(own >= first) & (own < last)] - first)
        attributes = dict(self.source.nodes[self.node_types[number]])
        time = attributes.pop(TIME, None)
        found: dict[str, Any] = {"global_id": ids, "feats": {name: read(ids) for name, read in attributes.items()}}
        if self.typed:
            found["id"] = ids
        return found if time is None else {**found, TIME: time(torch.arange(last - first))}

    def range_of(self, kind: str | None) -> tuple[int, int]:
        """Return the first id of a node type in the graph, and the one after its last."""
        number = self.node_types.index(kind)
        return self.offsets[number], self.offsets[number + 1]

    def write_maps(self, num_parts: int) -> None:
        """Write the part of each node and edge, and the metadata."""
        maps = {
            "node_map": {kind: self.parts[slice(*self.range_of(kind))] for kind in self.node_types},
            "edge_map": {kind and kind.replace(":", "__"): own for kind, own in self.edge_maps.items()},
        }
        for name, by_type in maps.items():
            if self.typed:
                (self.folder / name).mkdir()
            for kind, parts in by_type.items():
                path = self.folder / f"{name}.pt" if kind is None else self.folder / name / f"{file_name(kind)}.pt"
                save(torch.tensor(parts, dtype=torch.int64), path)
        content = {
            "num_parts": num_parts,
            "node_types": self.node_types if self.typed else None,
            "edge_types": [str(kind).split(":") for kind in self.edge_types] if self.typed else None,
            "node_offset": self.offsets[:-1] if self.typed else None,
            "is_hetero": self.typed,
            "is_sorted": True,
            "ids": BY_TYPE,
            EDGE_TIME: self.source.edge_time,
        }
        write_text(self.folder / META, json.dumps(content))


def file_name(kind: str) -> str:
    """Return a type as the name of a file, or raise if it would be that of a file elsewhere."""
    if "/" in kind or "\\" in kind or "\0" in kind:
        raise ValueError(f"type {kind!r} can't be the name of a file, which this layout wants; rename the type")
    return kind


def save(value: Any, path: Path) -> None:
    """Write a file of `torch.save`, and sync it to the disk."""
    with path.open("xb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())
