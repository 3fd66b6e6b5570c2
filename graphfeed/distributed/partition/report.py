"""What a partition costs: the edges that it cuts, how even its parts are, and how many nodes they read from others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphfeed.distributed.partition.edge_positions import edge_positions
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.ops.progress import progress_bar
from graphfeed.storage.graph.assignment.assign import stacked_assignment
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType

COLUMNS = ("part", "nodes", "in-edges", "cut", "cut %", "halo")


@dataclass(frozen=True)
class PartitionReport:
    """The size of each part, its cut and its halo. `str` of it is a table."""

    nodes: tuple[int, ...]
    """The nodes of each part."""
    edges: tuple[int, ...]
    """The in-edges of these nodes."""
    cut_edges: tuple[int, ...]
    """Those of the in-edges whose source is in another part."""
    halo_nodes: tuple[int, ...]
    """The nodes of other parts from which such an edge comes."""
    nodes_by_type: dict[str, tuple[int, ...]]
    """The nodes of each part by node type; empty if the graph has no types."""

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.nodes)

    @property
    def cut(self) -> float:
        """The share of all edges that is cut."""
        return sum(self.cut_edges) / max(sum(self.edges), 1)

    @property
    def halo(self) -> float:
        """The halo nodes of all parts, per node of the graph."""
        return sum(self.halo_nodes) / max(sum(self.nodes), 1)

    @property
    def balance(self) -> dict[str, float]:
        """The largest part over the mean: of nodes, of each node type, and of in-edges. 1 is even."""
        return {
            "nodes": unevenness(self.nodes),
            **{kind: unevenness(counts) for kind, counts in self.nodes_by_type.items()},
            "in-edges": unevenness(self.edges),
        }

    def __str__(self) -> str:
        """Return a table with a row per part, the sums, and the balance."""
        parts = range(self.num_parts)
        columns = (self.nodes, self.edges, self.cut_edges, self.halo_nodes)
        rows: list[Sequence[Any]] = [(part, *(counts[part] for counts in columns)) for part in parts]
        rows.append(("all", *map(sum, columns)))
        cells = [
            (str(name), f"{nodes:,}", f"{edges:,}", f"{cut:,}", f"{cut / max(edges, 1):.1%}", f"{halo:,}")
            for name, nodes, edges, cut, halo in rows
        ]
        balance = ", ".join(f"{name} {value:.2f}" for name, value in self.balance.items())
        return "\n".join([*align([COLUMNS, *cells]), f"largest part over the mean: {balance}"])


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line per row, with the cells of each column flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def unevenness(counts: Sequence[int]) -> float:
    """Return the largest count over the mean."""
    return max(counts) * len(counts) / max(sum(counts), 1) if sum(counts) else 1.0


def report_partition(graph: GraphArrays, assignment: ByType, num_parts: int) -> PartitionReport:
    """Count what a partition costs, in one pass over the edges.

    Beside the graph it takes at most 56 MiB and 42 bytes per node; less per node if parts are smaller than the graph.

    Args:
        graph: The graph, in memory or mapped.
        assignment: The part of each node; by node type if the graph has types.
        num_parts: The number of parts, of which some may be empty.

    Raises:
        KeyError: A node type is missing from the assignment.
        TypeError: The assignment is by type and the graph has no types, or the other way round.
        ValueError: The assignment doesn't have a part for each node, or there are more than 65,536 parts.

    Example:
        >>> import torch
        >>> from graphfeed import from_coo
        >>> graph = from_coo(torch.tensor([[0, 1, 2, 3, 0], [1, 0, 3, 2, 2]]), num_nodes=4)
        >>> print(report_partition(graph, torch.tensor([0, 0, 1, 1]), num_parts=2))
        part  nodes  in-edges  cut  cut %  halo
           0      2         2    0   0.0%     0
           1      2         3    1  33.3%     1
         all      4         5    1  20.0%     1
        largest part over the mean: nodes 1.00, in-edges 1.20
    """
    check_num_parts(num_parts)
    parts = stacked_assignment(graph, assignment, num_parts).numpy()
    indptr, indices = graph.csc_indptr.cpu().numpy(), graph.indices.cpu().numpy()
    offsets = [] if graph.node_type_offset is None else graph.first_ids()
    kinds = sorted(graph.node_type_to_id or {}, key=(graph.node_type_to_id or {}).__getitem__)
    nodes, edges, cut, halo = [], [], [], []
    with progress_bar("counting cut edges", indices.size, "edge") as progress:
        for part in range(num_parts):
            own = np.flatnonzero(parts == part)
            seen = np.zeros(parts.size, dtype=bool)
            total = crossing = 0
            for positions in edge_positions(indptr, own):
                sources = indices[positions]
                remote = sources[parts[sources] != part]
                total += positions.size
                crossing += remote.size
                seen[remote] = True
                progress.update(positions.size)
            nodes.append(own.size)
            edges.append(total)
            cut.append(crossing)
            halo.append(int(np.count_nonzero(seen)))
    by_type = {
        kind: tuple(np.bincount(parts[offsets[number] : offsets[number + 1]], minlength=num_parts).tolist())
        for number, kind in enumerate(kinds)
    }
    return PartitionReport(tuple(nodes), tuple(edges), tuple(cut), tuple(halo), by_type)
