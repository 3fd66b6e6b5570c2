"""Program of each rank that counts the rows it stores and sends for some mini-batches."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    assign_nodes,
    cut_graph,
    cut_rows,
)
from graphfeed.storage.memory import tensors_in
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import digest
from tests.stand_ins.rank_processes import rank_and_size


def shuffled(count: int, seed: int) -> torch.Tensor:
    """Return the numbers below a count in an order determined by a random seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def count_traffic(window: int | None = 0) -> dict[str, int]:
    """Return the rows that a rank stores and its traffic for some mini-batches, and the least possible traffic."""
    rank, num_nodes, peers = rank_and_size()[0], 20_000, Peers()
    # Each node has ten in-edges, and is the source of ten.
    sources = torch.cat([shuffled(num_nodes, number) for number in range(10)])
    graph = gf.from_coo((sources, torch.arange(200_000) % num_nodes), num_nodes)
    part = cut_graph(graph, assign_nodes(graph, rank_and_size()[1], "hash"), rank)
    own = cut_rows(torch.zeros(num_nodes, 32), part.book, rank)
    store = gf.BasicFeatureStore({("node", None, "x"): PartitionedFeature(own, part.book, peers)})
    parts = PartitionedGraph(part, peers)

    def load(number: int) -> gf.DataLoader:
        seeds = gf.ItemSet(shuffled(num_nodes, 100 * number + rank)[:2048], names="seeds")
        pipe = gf.ItemSampler(seeds, batch_size=512).sample_neighbor(parts, [10, 10])
        return gf.DataLoader(pipe.fetch_feature(store, ["x"]), 0, seed=rank, window=window)

    next(iter(load(1)))
    distributed.barrier()
    # Without the messages sent before parts are compared.
    exchanges, sent = peers.traffic.exchanges, peers.traffic.bytes_sent
    distributed.barrier()
    batches, least, edges = 0, 0, 0
    for batch in load(2):
        batches += 1
        for hop in batch.sampled_subgraphs:
            edges += hop.sampled_csc.indices.numel()
            remote = part.book.owners_of(hop.original_column_node_ids) != rank
            # An id and a count for each column, a source and an id for each edge.
            least += 8 * int(remote.sum()) + 8 * int(hop.sampled_csc.indptr.diff()[remote].sum())
        least += (4 + 32 * 4) * int((part.book.owners_of(batch.input_nodes) != rank).sum())
    peers.close()
    peers.join()
    exchanges, sent = peers.traffic.exchanges - exchanges, peers.traffic.bytes_sent - sent
    book: Any = part.book
    held = bytes_of([vars(part.columns), book.owners, book.offsets])
    counted = {"batches": batches, "exchanges": exchanges, "sent": sent, "least": least, "edges": edges}
    return {**counted, "graph_bytes": held, "feature_bytes": own.nbytes}


def send_for_own_seeds(batch_size: int, batches: int) -> dict[str, Any]:
    """Return a rank's traffic for mini-batches with seeds of all parts and of its own, and how many are correct."""
    (rank, world_size), peers, graph = rank_and_size(), Peers(), graphs.communities(4000, 50, 8)
    assignment: Any = assign_nodes(graph, world_size, "ldg")
    book = PartBook.from_assignment(assignment, world_size)
    rows, part = torch.arange(4000 * 16).view(4000, 16).int(), cut_graph(graph, book, rank)
    in_parts = PartitionedGraph(part, peers), PartitionedFeature(cut_rows(rows, book, rank), book, peers)

    def load(owners: PartBook | None, graph: gf.SamplingGraph, feature: gf.Feature, **options: Any) -> Iterator[Any]:
        items = gf.ItemSet(4000, names="seeds")
        pipe = gf.DistributedItemSampler(items, batch_size, shuffle=True, owners=owners, **options)
        store = gf.BasicFeatureStore({("node", None, "x"): feature})
        pipe = pipe.sample_neighbor(graph, [5, 5]).fetch_feature(store, ["x"])
        # One by one, because they are counted; a window would also sample mini-batches that are not used.
        return iter(gf.DataLoader(pipe, 0, seed=0, window=0))

    found: dict[str, Any] = {"equal": 0}
    next(load(None, *in_parts))
    for name, owners in (("all_parts", None), ("own_part", book)):
        distributed.barrier()
        before = peers.traffic.bytes_sent
        distributed.barrier()
        made = list(islice(load(owners, *in_parts), batches))
        distributed.barrier()
        found[name] = peers.traffic.bytes_sent - before
        alone = load(owners, graph, gf.TorchBasedFeature(rows), rank=0, world_size=1)
        expected = [digest(batch) for batch in islice(alone, batches * world_size)][rank::world_size]
        found["equal"] += sum(digest(batch) == other for batch, other in zip(made, expected, strict=True))
    peers.close()
    peers.join()
    return found


def bytes_of(tree: Any) -> int:
    """Return the bytes of distinct tensors."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors_in(tree)}.values())
