"""How fast a rank makes mini-batches of a graph in parts, measured on this machine for `plan_cluster`."""

import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import distributed

from graphfeed.datapipes import ItemSampler
from graphfeed.distributed.graph_part import cut_graph, cut_rows
from graphfeed.distributed.partitioned_feature import PartitionedFeature
from graphfeed.distributed.partitioned_graph import PartitionedGraph
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.loader import DataLoader, ProcessExecutor
from graphfeed.loader.executors import available_cores
from graphfeed.storage import BasicFeatureStore, Feature, ItemSet, SamplingGraph, TorchBasedFeature
from graphfeed.storage.graph import assign_nodes, fused_csc_sampling_graph

if TYPE_CHECKING:
    from graphfeed.distributed.partition.plan_cluster import ClusterPlan

SECONDS = 3.0
"""How long mini-batches are made, by one process and then by two."""
WAIT_SECONDS = 300.0
"""How long each of these may take together with its start, and with kernels to compile."""
RANKS = 2
MOST_WORKERS = 8


class Cost(NamedTuple):
    """What a rank takes for a mini-batch, with several in flight."""

    seconds: float
    cpu_seconds: float
    """Those of all its threads, which also answer another rank."""


@dataclass(frozen=True)
class RankRate:
    """What a mini-batch costs a rank of this machine, by the share of it that other machines have."""

    local: Cost
    """If it reads nothing of other machines."""
    exchanged: Cost
    """If another rank has half of all nodes, and asks as much in return."""
    cores: int
    """The cores of this machine."""

    def cost(self, remote: float) -> Cost:
        """Return the cost where some share of all nodes is remote: it grows with that share."""
        share = remote * RANKS / (RANKS - 1)
        costs = zip(self.local, self.exchanged, strict=True)
        # A busy machine may have been slower while there was less to do.
        return Cost(*(max(local, local + share * (exchanged - local)) for local, exchanged in costs))

    def most_ranks(self, remote: float) -> int:
        """Return how many ranks keep all cores busy; more of them make no more mini-batches."""
        cost = self.cost(remote)
        return max(1, round(self.cores * cost.seconds / cost.cpu_seconds))

    def batches_per_second(self, remote: float, ranks: int) -> float:
        """Return the mini-batches that some ranks of a machine make, as far as it has cores for them."""
        cost = self.cost(remote)
        return min(ranks / cost.seconds, self.cores / cost.cpu_seconds)

    def scaled(self, factor: float) -> "RankRate":
        """Return the costs of mini-batches that are some times as large."""
        local, exchanged = (Cost(*(factor * value for value in cost)) for cost in (self.local, self.exchanged))
        return RankRate(local, exchanged, self.cores)


def measure_rank(plan: "ClusterPlan", seconds: float = SECONDS) -> RankRate:
    """Measure one process with a plan's whole graph, then two processes with a part each that exchange messages."""
    found = []
    for ranks in (1, RANKS):
        with tempfile.TemporaryDirectory() as folder, ProcessExecutor(ranks, timeout=WAIT_SECONDS) as executor:
            futures = [executor.submit(be_rank, rank, ranks, folder, plan, seconds) for rank in range(ranks)]
            costs = [future.result() for future in futures]
        found.append(Cost(*(sum(values) / ranks for values in zip(*costs, strict=True))))
    return RankRate(found[0], found[1], available_cores())


def be_rank(rank: int, world_size: int, folder: str, plan: "ClusterPlan", seconds: float) -> Cost:
    """Make mini-batches as a rank for some seconds, and return what each of them took."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        "gloo", f"file://{folder}/store", timedelta(seconds=WAIT_SECONDS), rank=rank, world_size=world_size
    )
    peers = Peers(share_memory=False)
    workers = min(MOST_WORKERS, max(1, available_cores() // RANKS))
    try:
        with DataLoader(make_pipe(plan, rank, world_size, peers), workers, seed=rank) as loader:
            batches = chain.from_iterable(repeat(loader))  # one epoch after the other
            for _ in range(2 * workers):  # kernels are compiled, and workers get ahead
                next(batches)
            distributed.barrier()
            start, cpu_start, number = time.perf_counter(), time.process_time(), 0
            while number == 0 or time.perf_counter() < start + seconds:
                next(batches)
                number += 1
            cost = Cost((time.perf_counter() - start) / number, (time.process_time() - cpu_start) / number)
            distributed.barrier()
    finally:
        peers.close()
        peers.join()
        distributed.destroy_process_group()
    return cost


def make_pipe(plan: "ClusterPlan", rank: int, world_size: int, peers: Peers) -> Any:
    """Return the pipeline of a rank, which has its part of a graph with uniform sources that all ranks make."""
    nodes, degree = plan.num_nodes, plan.num_edges // plan.num_nodes
    ids = torch.int32 if plan.id_bytes == torch.int32.itemsize else torch.int64
    sources = torch.randint(nodes, (nodes * degree,), generator=torch.Generator().manual_seed(0), dtype=ids)
    whole = fused_csc_sampling_graph(torch.arange(nodes + 1) * degree, sources)
    rows = torch.ones(nodes, plan.row_bytes, dtype=torch.uint8)
    graph: SamplingGraph = whole
    feature: Feature = TorchBasedFeature(rows)
    if world_size > 1:
        part = cut_graph(whole, assign_nodes(whole, world_size, "hash"), rank)
        graph = PartitionedGraph(part, peers)
        feature = PartitionedFeature(cut_rows(rows, part.book, rank), part.book, peers)
    pipe: Any = ItemSampler(ItemSet(nodes, names="seeds"), plan.seeds, shuffle=True)
    pipe = pipe.sample_neighbor(graph, plan.fanouts)
    if plan.row_bytes:
        pipe = pipe.fetch_feature(BasicFeatureStore({("node", None, "row"): feature}), ["row"])
    return pipe
