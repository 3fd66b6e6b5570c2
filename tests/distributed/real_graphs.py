"""What each rank runs to compare mini-batches of real graphs in parts, and to count what is sent."""

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartitionedFeature, PartitionedGraph, Peers, assign_nodes, cut_graph, cut_rows
from graphfeed.distributed.ranks.peers import SHARED, find_place
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.digests import assert_same
from tests.golden_pipelines import numbers
from tests.test_edge_truth import load

Parts = tuple[PartitionedGraph, gf.BasicFeatureStore]


def cut(graph: gf.FusedCSCSamplingGraph, method: str, cache_bytes: int = 0) -> tuple[gf.BasicFeatureStore, Parts]:
    """Return codes of nodes as a feature of the whole graph, and this rank's part of the graph and of the feature."""
    rank, world_size = find_place()
    part = cut_graph(graph, assign_nodes(graph, world_size, method), rank)
    whole, own, sizes = {}, {}, graph.num_nodes
    for kind, size in sizes.items() if isinstance(sizes, dict) else [(None, sizes)]:
        book = part.book if kind is None else part.book_of(kind)
        values = torch.arange(size * 4).view(size, 4)
        feature: gf.Feature = PartitionedFeature(cut_rows(values, book, rank), book)
        whole["node", kind, "code"] = gf.TorchBasedFeature(values)
        own["node", kind, "code"] = gf.cpu_cached_feature(feature, cache_bytes) if cache_bytes else feature
    return gf.BasicFeatureStore(whole), (PartitionedGraph(part), gf.BasicFeatureStore(own))


def count_equal(whole: gf.Datapipe, in_parts: gf.Datapipe, most: int = 6) -> int:
    """Compare mini-batches of two pipelines; return how many were compared."""
    with gf.DataLoader(in_parts, 2, seed=find_place()[0]) as found:
        wanted = gf.DataLoader(whole, 0, seed=find_place()[0])
        pairs = list(islice(zip(found, wanted, strict=True), most))
    for pair in pairs:
        assert_same(*pair)
    return len(pairs)


def citations(folder: Path, name: str, method: str) -> int:
    """Compare a homogeneous graph, with a cache of rows, also those of other ranks."""
    arrays = load(folder, name)
    graph = gf.from_coo((arrays["src"], arrays["dst"]), int(arrays["num_nodes"]))
    codes, (graph_in_parts, codes_in_parts) = cut(graph, method, cache_bytes=1 << 14)
    items = gf.ItemSet((arrays["test_idx"], arrays["label"][arrays["test_idx"].long()]), names=("seeds", "labels"))
    pipe = gf.ItemSampler(items, batch_size=150, shuffle=True)
    return count_equal(
        pipe.sample_neighbor(graph, [10, 10]).fetch_feature(codes, ["code"]),
        pipe.sample_neighbor(graph_in_parts, [10, 10]).fetch_feature(codes_in_parts, ["code"]),
    )


def wordnet() -> int:
    """Compare a graph with types."""
    dataset = gf.datasets.wordnet()
    graph: Any = dataset.graph
    codes, (graph_in_parts, codes_in_parts) = cut(graph, "range")
    pipe = gf.ItemSampler(dataset.train_set, batch_size=1000, shuffle=True)
    names = {"synset": ["code"], "word": ["code"]}
    return count_equal(
        pipe.sample_neighbor(graph, [5, 5]).fetch_feature(codes, names),
        pipe.sample_neighbor(graph_in_parts, [5, 5]).fetch_feature(codes_in_parts, names),
    )


def edits(folder: Path) -> int:
    """Compare a graph with types in time."""
    arrays = load(folder, "wikipedia_temporal")
    pair, times = (arrays["src"].long(), arrays["dst"].long()), arrays["timestamp"].long()
    graph = gf.from_coo(
        {"user:edits:page": pair, "page:edited_by:user": pair[::-1]},
        {kind: int(arrays[f"num_nodes_{kind}"]) for kind in ("user", "page")},
        edge_attributes={"time": {"user:edits:page": times, "page:edited_by:user": times}},
    )
    _, (graph_in_parts, _) = cut(graph, "hash")
    chosen = numbers(2000, len(times), 40)
    items = gf.ItemSet((pair[1][chosen], times[chosen]), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(gf.HeteroItemSet({"page": items}), batch_size=200)
    options: dict[str, Any] = {"edge_timestamp_attr_name": "time", "strategy": "latest"}
    return count_equal(
        pipe.temporal_sample_neighbor(graph, [10, 5], **options),
        pipe.temporal_sample_neighbor(graph_in_parts, [10, 5], **options),
    )


def compare(data: str, share_memory: bool) -> dict[str, int]:
    """Return how many mini-batches of each graph were equal."""
    path = Path(data)
    SHARED[distributed.group.WORLD] = Peers(share_memory=share_memory)
    return {
        "cora": citations(path, "cora", "ldg"),
        "musae_github": citations(path, "musae_github", "hash"),
        "wordnet": wordnet(),
        "wikipedia_temporal": edits(path),
    }


def shuffled(count: int, seed: int) -> torch.Tensor:
    """Return the numbers below a count in an order that a seed determines."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def count_traffic(share_memory: bool, start_bytes: int = 8) -> dict[str, int]:
    """Return what a rank holds and sent for some mini-batches, and the least that their ids, edges and rows take."""
    rank, num_nodes, peers = find_place()[0], 20_000, Peers(share_memory=share_memory)
    # Each node has ten in-edges, and is the source of ten.
    sources = torch.cat([shuffled(num_nodes, number) for number in range(10)])
    graph = gf.from_coo((sources, torch.arange(200_000) % num_nodes), num_nodes)
    if start_bytes == 4:
        graph.csc_indptr = graph.csc_indptr.int()
    part = cut_graph(graph, assign_nodes(graph, find_place()[1], "hash"), rank)
    own = cut_rows(torch.zeros(num_nodes, 32), part.book, rank)
    store = gf.BasicFeatureStore({("node", None, "x"): PartitionedFeature(own, part.book, peers)})
    parts = PartitionedGraph(part, peers)

    def load(number: int) -> gf.DataLoader:
        seeds = gf.ItemSet(shuffled(num_nodes, 100 * number + rank)[:2048], names="seeds")
        pipe = gf.ItemSampler(seeds, batch_size=512).sample_neighbor(parts, [10, 10])
        return gf.DataLoader(pipe.fetch_feature(store, ["x"]), 0, seed=rank)

    next(iter(load(1)))
    distributed.barrier()
    # Without what is sent before memory is shared.
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
    merged = bytes_of(vars(parts._here.columns)) if share_memory else 0
    counted = {"batches": batches, "exchanges": exchanges, "sent": sent, "least": least, "edges": edges}
    return {**counted, "graph_bytes": held, "feature_bytes": own.nbytes, "merged_bytes": merged}


def bytes_of(tree: Any) -> int:
    """Return the bytes of some tensors, each of which is counted once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors_in(tree)}.values())
