"""What a mini-batch takes on the network, by whose seeds it has: counted on mini-batches of the whole graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import DistributedItemSampler, MiniBatch
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.distributed.partition.plan_cluster import INT32, MESSAGE_BYTES, least_bytes
from graphfeed.loader import bytes_text
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.graph import (
    ByType,
    FusedCSCSamplingGraph,
    etype_str_to_tuple,
    from_type_dict,
    split_by_type,
    stacked_assignment,
    to_type_dict,
)

BATCHES = 8
"""How many mini-batches are counted, for each kind of seeds."""


@dataclass(frozen=True)
class SeedTraffic:
    """The bytes that ranks send each other for a mini-batch, questions and answers. `str` of it is a sentence."""

    all_parts: float
    """If ranks share the mini-batches of one process, whose seeds are of all parts."""
    own_part: float
    """If a rank's seeds are of its own part: `DistributedItemSampler(owners=...)`."""

    def __str__(self) -> str:
        """Return both in a sentence."""
        return (
            f"ranks send {bytes_text(self.all_parts)} for a mini-batch with seeds of all parts, "
            f"{bytes_text(self.own_part)} with those of its own part (owners=...)"
        )


def count_seed_traffic(
    graph: FusedCSCSamplingGraph,
    assignment: ByType,
    num_parts: int,
    item_set: ItemSet | HeteroItemSet,
    fanouts: Sequence[int],
    batch_size: int = 1024,
    row_bytes: Mapping[str | None, int] | int = 0,
) -> SeedTraffic:
    """Count what mini-batches of a graph in parts would take on the network, on a few of the whole graph.

    Each part is taken for that of another machine, without copies of other parts' rows or caches.

    Args:
        item_set: The items to train on.
        fanouts: One per hop, the hop at the seeds last.
        batch_size: The items of a mini-batch.
        row_bytes: The features of a node; by node type if types have different ones.

    Example:
        >>> from graphfeed import from_coo
        >>> ring = from_coo((torch.arange(8), (torch.arange(8) + 1) % 8), num_nodes=8)
        >>> halves = torch.arange(8) // 4
        >>> print(count_seed_traffic(ring, halves, 2, ItemSet(8, names="seeds"), [1], batch_size=4, row_bytes=400))
        ranks send 2.8 kB for a mini-batch with seeds of all parts, 996 B with those of its own part (owners=...)
    """
    check_num_parts(num_parts)
    parts = split_by_type(stacked_assignment(graph, assignment, num_parts), graph.num_nodes)
    books = {node_type: PartBook.from_assignment(own, num_parts) for node_type, own in parts.items()}
    node, edge = least_bytes(graph.total_num_nodes), least_bytes(graph.total_num_edges)
    types = 0 if graph.type_per_edge is None else graph.type_per_edge.itemsize
    rows = dict(row_bytes) if isinstance(row_bytes, Mapping) else dict.fromkeys(books, row_bytes)
    # With each column goes its id and the count of its edges, with each row its id.
    sizes = node + INT32, node + edge + types, {kind: node + size for kind, size in rows.items() if size}
    means = []
    for owners in (None, from_type_dict(books)):
        # One process makes the mini-batches of all ranks in turn.
        source = DistributedItemSampler(item_set, batch_size, shuffle=True, rank=0, world_size=1, owners=owners)
        batches = islice(source.sample_neighbor(graph, fanouts), BATCHES)
        sent = [bytes_sent(batch, books, number % num_parts, *sizes) for number, batch in enumerate(batches)]
        means.append(sum(sent) / len(sent))
    return SeedTraffic(*means)


def bytes_sent(
    batch: MiniBatch, books: Mapping[Any, PartBook], rank: int, column: int, edge: int, rows: Mapping[Any, int]
) -> int:
    """Return the bytes that a rank and others send each other for a mini-batch of the rank's.

    `column`, `edge` and `rows` are the bytes of a node that is sampled around, of an edge, and of a row by node type.
    """
    total = 0
    for hop in batch.sampled_subgraphs:
        remote, messages = find_remote(books, hop.original_column_node_ids, rank)
        total += messages + column * sum(int(own.sum()) for own in remote.values())
        for edge_type, csc in to_type_dict(hop.sampled_csc).items():
            columns = remote[edge_type and etype_str_to_tuple(edge_type)[2]]
            total += edge * int(csc.indptr.diff()[columns].sum())
    nodes = {kind: own for kind, own in to_type_dict(batch.input_nodes).items() if kind in rows}
    remote, messages = find_remote(books, nodes, rank)
    return total + messages + sum(rows[kind] * int(own.sum()) for kind, own in remote.items())


def find_remote(
    books: Mapping[Any, PartBook], nodes: Mapping[Any, torch.Tensor] | torch.Tensor, rank: int
) -> tuple[dict[Any, torch.Tensor], int]:
    """Return which nodes belong to other ranks, by type, and the bytes of messages to these ranks besides the nodes."""
    owners = {node_type: books[node_type].owners_of(own).numpy() for node_type, own in to_type_dict(nodes).items()}
    asked = {owner for own in owners.values() for owner in np.unique(own).tolist()} - {rank}
    return {node_type: torch.from_numpy(own != rank) for node_type, own in owners.items()}, len(asked) * MESSAGE_BYTES
