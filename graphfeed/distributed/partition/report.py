"""The cut edges, the balance and the halo of a partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphfeed.distributed.edge_positions import remote_sources
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.ops.arguments import checked
from graphfeed.ops.process import progress_bar
from graphfeed.storage.graph import ByType, GraphArrays, stacked_assignment


@dataclass(frozen=True)
class PartitionReport:
    """The size of each part, its cut and its halo. `str()` returns a table."""

    nodes: tuple[int, ...]
    """Number of nodes of each part."""
    edges: tuple[int, ...]
    """Number of in-edges of these nodes."""
    cut_edges: tuple[int, ...]
    """Number of these in-edges whose source is in another part."""
    halo_nodes: tuple[int, ...]
    """Number of distinct nodes of other parts that are sources of such edges."""
    nodes_by_type: dict[str, tuple[int, ...]]
    """Number of nodes of each part by node type; empty if the graph has no types."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.nodes)

    @property
    def cut(self) -> float:
        """The fraction of all edges that is cut."""
        return sum(self.cut_edges) / max(sum(self.edges), 1)

    @property
    def halo(self) -> float:
        """Number of halo nodes of all parts, divided by the number of nodes of the graph."""
        return sum(self.halo_nodes) / max(sum(self.nodes), 1)

    @property
    def balance(self) -> dict[str, float]:
        """Size of the largest part divided by the mean: of nodes, of each node type, and of in-edges. 1 is even."""
        return {
            "nodes": unevenness(self.nodes),
            **{node_type: unevenness(counts) for node_type, counts in self.nodes_by_type.items()},
            "in-edges": unevenness(self.edges),
        }

    def __str__(self) -> str:
        """Return a table with a row per part, the sums, and the balance."""
        columns = (self.nodes, self.edges, self.cut_edges, self.halo_nodes)

        def as_text(nodes: int, edges: int, cut: int, halo: int) -> tuple[str, ...]:
            return f"{nodes:,}", f"{edges:,}", f"{cut:,}", f"{cut / max(edges, 1):.1%}", f"{halo:,}"

        lines = cut_table(("part", "nodes", "in-edges", "cut", "cut %", "halo"), columns, as_text)
        balance = ", ".join(f"{name} {value:.2f}" for name, value in self.balance.items())
        return "\n".join([*lines, f"largest part over the mean: {balance}"])


def cut_table(
    titles: Sequence[str], columns: Sequence[Sequence[int]], as_text: Callable[..., tuple[str, ...]]
) -> list[str]:
    """Return right-aligned lines: the titles, then `as_text` of each part's numbers, and of the sums of `columns`."""
    rows = [(str(part), *as_text(*numbers)) for part, numbers in enumerate(zip(*columns, strict=True))]
    rows = [tuple(titles), *rows, ("all", *as_text(*map(sum, columns)))]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def unevenness(counts: Sequence[int]) -> float:
    return max(counts) * len(counts) / max(sum(counts), 1) if sum(counts) else 1.0


@checked
def report_partition(graph: GraphArrays, assignment: ByType, num_parts: int) -> PartitionReport:
    """Count the nodes, in-edges, cut edges and halo nodes of each part of a partition, in one pass over the edges.

    In addition to the graph, which may be memory-mapped, it takes at most 56 MiB and 42 bytes per node.

    Args:
        assignment: The part of each node; by node type if the graph has types.
        num_parts: At most 65,536; some parts may be empty.

    Raises:
        KeyError: A node type is missing from the assignment.
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
    parts, graph = stacked_assignment(graph, assignment, num_parts).numpy(), graph.to("cpu")
    edges, cut, halo = [], [], []
    with progress_bar("counting cut edges", graph.total_num_edges, "edge") as progress:
        for part in range(num_parts):
            seen = np.zeros(parts.size, dtype=bool)
            total = crossing = 0
            for count, remote in remote_sources(graph, parts, part, progress.update):
                total += count
                crossing += remote.size
                seen[remote] = True
            edges.append(total)
            cut.append(crossing)
            halo.append(int(np.count_nonzero(seen)))
    of_types = [np.bincount(parts[low:high], minlength=num_parts) for low, high in pairwise(graph.first_ids())]
    nodes = np.sum(of_types, axis=0).tolist()
    names = graph.num_nodes if isinstance(graph.num_nodes, dict) else ()
    nodes_by_type = {name: tuple(counts.tolist()) for name, counts in zip(names, of_types, strict=False)}
    return PartitionReport(tuple(nodes), tuple(edges), tuple(cut), tuple(halo), nodes_by_type)
