"""Joint mini-batches of several ranks, and the equal mini-batches of a single machine."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from typing import Any

import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    RendezvousAddress,
    cut_graph,
    cut_rows,
)
from graphfeed.distributed.cooperative.cooperate import join_ranks
from tests.kinds.golden_pipelines import numbers
from tests.kinds.partitioned_graphs import plain, typed
from tests.stand_ins.rank_processes import free_port

BATCH_SIZE = 6

Hop = dict[tuple[str, int], tuple[list[int], list[int]]]
"""For each edge type and column: the sources and the ids of its edges."""


def by_type(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {None: value}


def edges_of(hop: Any) -> Hop:
    """Return the edges of each column of a hop, by global ids."""
    found: Hop = {}
    columns, rows, ids = (
        by_type(part) for part in (hop.original_column_node_ids, hop.original_row_node_ids, hop.original_edge_ids)
    )
    for name, csc in by_type(hop.sampled_csc).items():
        source, _, end = name.split(":") if name else (None, None, None)
        sources = rows[source][csc.indices]
        for number, column in enumerate(columns[end].tolist()):
            part = slice(int(csc.indptr[number]), int(csc.indptr[number + 1]))
            found[name, column] = sources[part].tolist(), ids[name][part].tolist()
    return found


def check_joint(shares: Sequence[gf.MiniBatch], wanted: gf.MiniBatch) -> None:
    """Fail unless the ranks' shares of a joint mini-batch together equal the mini-batch of a single machine."""
    for layer, hop in enumerate(wanted.sampled_subgraphs or ()):
        parts = [edges_of((share.sampled_subgraphs or [])[layer]) for share in shares]
        together = {name: edges for part in parts for name, edges in part.items()}
        assert sum(map(len, parts)) == len(together)  # no duplicate columns
        assert together == edges_of(hop)
    nodes = by_type(wanted.input_nodes)
    outermost: list[Any] = [(share.sampled_subgraphs or [])[0] for share in shares]
    for kind, ids in nodes.items():
        owned = torch.cat([by_type(hop.exchange.owned)[kind] for hop in outermost])
        assert owned.sort().values.tolist() == ids.unique().tolist()
    for share in shares:
        for name, rows in (share.node_features or {}).items():
            ids = by_type(share.input_nodes)[name[0] if isinstance(name, tuple) else None]
            assert torch.equal(rows, codes(ids))


def codes(ids: torch.Tensor) -> torch.Tensor:
    """Return features that identify the ids of nodes."""
    return ids[:, None] * 10 + torch.arange(3)


def items(graph: gf.FusedCSCSamplingGraph) -> Any:
    """Return all nodes as seeds, or those of one type."""
    sizes = graph.num_nodes
    if isinstance(sizes, int):
        return gf.ItemSet(sizes, names="seeds")
    return gf.HeteroItemSet({kind: gf.ItemSet(sizes[kind], names="seeds") for kind in ("user", "item")})


def names(graph: gf.SamplingGraph) -> Any:
    """Return the names of the features."""
    return {kind: ["code"] for kind in ("user", "item")} if isinstance(graph.num_nodes, dict) else ["code"]


def alone(graph: gf.FusedCSCSamplingGraph, sample: str, world_size: int, **options: Any) -> gf.Datapipe:
    """Return the pipeline of a single machine."""
    pipe = gf.ItemSampler(items(graph), world_size * BATCH_SIZE, shuffle=True)
    found: gf.Datapipe = getattr(pipe, sample)(graph, [3, 4], **options)
    return found


def of_ranks(graph: gf.FusedCSCSamplingGraph, own: Any, store: Any, sample: str, **options: Any) -> gf.Datapipe:
    """Return the pipeline of a rank; `options` also has its rank and the number of ranks, unless a group has them."""
    place = {name: options.pop(name) for name in ("rank", "world_size") if name in options}
    pipe = gf.DistributedItemSampler(items(graph), BATCH_SIZE, shuffle=True, drop_uneven_inputs=True, **place)
    sampled: gf.Datapipe = getattr(pipe, sample)(own, [3, 4], cooperative=True, **options)
    return sampled.fetch_feature(store, names(graph), cooperative=True)


def parts_of(graph: gf.FusedCSCSamplingGraph, rank: int, world_size: int, peers: Peers | None) -> tuple[Any, Any]:
    """Return a rank's part of a graph and of the codes of its nodes.

    The last of three ranks owns nothing, and with four ranks, two store each part.
    """
    num_parts = 2 if world_size == 4 else world_size
    number, owning = rank * num_parts // world_size, numbers(graph.total_num_nodes, min(2, world_size), 7)
    part = cut_graph(graph, PartBook.from_assignment(owning, num_parts), number)
    features: dict[Any, gf.Feature] = {}
    for kind, count in by_type(graph.num_nodes).items():
        own = part.book_of(kind) if kind else part.book
        features["node", kind or None, "code"] = PartitionedFeature(
            cut_rows(codes(torch.arange(count)), own, number), own, peers, kind or ""
        )
    return PartitionedGraph(part, peers), gf.BasicFeatureStore(features)


@cache
def port_of(world_size: int) -> int:
    """Return the port where so many ranks of this process meet; rank 0 keeps a store open for each port."""
    return free_port()


def in_threads(world_size: int, work: Callable[[int, Peers], Any]) -> list[Any]:
    """Call a function with each rank and its peers, in a thread per rank; return the results."""
    port = port_of(world_size)

    def be_rank(rank: int) -> Any:
        meeting = RendezvousAddress("127.0.0.1", port, rank, world_size)
        peers = Peers(start_timeout=200, timeout=200, meeting=meeting)
        try:
            return work(rank, peers)
        finally:
            peers.close()

    with ThreadPoolExecutor(world_size) as pool:
        futures = [pool.submit(be_rank, rank) for rank in range(world_size)]
        for future in as_completed(futures):
            future.result()  # raises the first error, because of which other ranks fail
        return [future.result() for future in futures]


def joint_pipe(rank: int, peers: Peers, kind: str, sample: str, **options: Any) -> gf.Datapipe:
    """Return the pipeline of a rank that is a thread, after the loader's rule."""
    graph = GRAPHS[kind]()
    own, store = parts_of(graph, rank, peers.world_size, peers)
    pipe = of_ranks(graph, own, store, sample, rank=rank, world_size=peers.world_size, **options)
    return join_ranks(pipe, peers.world_size)


GRAPHS = {"plain": plain, "typed": typed}


def shares_of(world_size: int, num_workers: int, kind: str, sample: str, **options: Any) -> list[list[gf.MiniBatch]]:
    """Return the joint mini-batches of an epoch, each as the shares of the ranks."""

    def work(rank: int, peers: Peers) -> list[gf.MiniBatch]:
        with gf.DataLoader(joint_pipe(rank, peers, kind, sample, **options), num_workers, seed=3) as loader:
            return list(loader)

    return list(zip(*in_threads(world_size, work), strict=True))  # type: ignore[arg-type]


def check_epoch(world_size: int, num_workers: int, kind: str, sample: str, **options: Any) -> int:
    """Compare an epoch; return its number of mini-batches."""
    wanted = gf.DataLoader(alone(GRAPHS[kind](), sample, world_size, **options), 0, seed=3)
    # The last mini-batch of the single machine has the seeds that ranks drop.
    pairs = list(zip(shares_of(world_size, num_workers, kind, sample, **options), wanted, strict=False))
    for shares, whole in pairs:
        check_joint(shares, whole)
    return len(pairs)
