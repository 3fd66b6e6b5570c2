"""A rank of the benchmark: it runs the cases in turn, all ranks at once or only the first one."""

import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

import graphfeed as gf
from benchmarks.distributed import (
    AHEAD,
    ALONE,
    BOTH_ASK,
    BY_ITSELF,
    EXCHANGED,
    FETCHING,
    JOINT,
    LIMIT,
    ONE_ASKS,
    SOCKET,
)
from benchmarks.graphs import Shape, load_edges, load_features
from benchmarks.sampling import FANOUTS
from benchmarks.timing import WARM_UP_ROUNDS
from graphfeed.distributed import PartitionedFeature, PartitionedGraph, Peers, assign_nodes, cut_graph, cut_rows

THREADS = 3
"""Number of mini-batches in flight if mini-batches wait for other ranks."""
ASKED_ROWS, ASKED_TIMES = 10_000, 60
"""Number of rows per request, and number of requests."""
TIMEOUT = timedelta(minutes=20)
Stored = tuple[gf.SamplingGraph, gf.Feature]


class Rank:
    """One of the processes.

    Args:
        rank: Which one.
        world_size: How many there are.
        sizes: The fields of the `Scale`.
    """

    def __init__(self, rank: int, world_size: int, sizes: dict[str, Any]) -> None:
        self.rank = rank
        self.world_size = world_size
        self.batch_size, self.batches = sizes["batch_size"], max(1, sizes["epoch_batches"] // world_size)
        self.repeats = sizes["repeats"]
        shape, cache = Shape(**sizes["products"]), Path(sizes["cache"])
        indptr, indices = load_edges(shape, cache)
        whole = gf.fused_csc_sampling_graph(torch.from_numpy(indptr), torch.from_numpy(indices))
        features = torch.from_numpy(load_features(shape, cache))
        self.num_nodes = shape.num_nodes
        part = cut_graph(whole, assign_nodes(whole, world_size, "hash"), rank)
        self.book = part.book
        rows = cut_rows(features, part.book, rank)
        self.peers = Peers()
        in_parts = PartitionedGraph(part, self.peers), PartitionedFeature(rows, part.book, self.peers)
        alone = whole, gf.TorchBasedFeature(features)
        # Read-only rows are constant, like those of opened partitions.
        constant = rows.numpy().view()
        constant.flags.writeable = False
        ahead = in_parts[0], PartitionedFeature(gf.TorchBasedFeature(constant), part.book, self.peers)
        self.stored: dict[str, Stored] = {EXCHANGED: in_parts, AHEAD: ahead, LIMIT: alone, ALONE: alone}

    def make_pipe(self, name: str, seed: int, *, fetching: bool) -> gf.Datapipe:
        """Return the pipeline of a case, with seeds of this rank."""
        graph, feature = self.stored[name]
        count = self.batches * self.batch_size
        seeds = np.random.default_rng([seed, self.rank]).choice(self.num_nodes, count, replace=False)
        items = gf.ItemSet((torch.from_numpy(seeds),), names=("seeds",))
        head = gf.ItemSampler(items, batch_size=self.batch_size)
        sampled = gf.NeighborSampler(head, graph, fanouts=FANOUTS)
        store = gf.BasicFeatureStore({("node", None, "feat"): feature})
        return gf.FeatureFetcher(sampled, store, node_feature_keys=["feat"]) if fetching else sampled

    def run_epoch(self, name: str, number: int, *, fetching: bool) -> list[float]:
        """Produce mini-batches, also on the other ranks unless only one runs; return edges and seconds.

        A rank that is done continues to answer the others until all are done, so all count the same seconds.
        """
        distributed.barrier()
        alone, edges = name == ALONE, 0
        start, cpu_start = time.perf_counter(), time.process_time()
        if self.rank == 0 or not alone:
            pipe = self.make_pipe(name, number, fetching=fetching)
            with gf.DataLoader(pipe, THREADS if name in (EXCHANGED, AHEAD) else 0, seed=number) as loader:
                for batch in loader:
                    edges += sum(hop.sampled_csc.indices.numel() for hop in batch.sampled_subgraphs)
            if not alone:
                distributed.barrier()
        return [edges, time.perf_counter() - start, time.process_time() - cpu_start]

    def measure(self) -> dict[str, Any]:
        """Run all cases in turn, and return the edges and seconds of each round, per core."""
        names = [(name, fetching) for fetching in (False, True) for name in (ALONE, LIMIT, EXCHANGED)]
        names.append((AHEAD, True))
        found: dict[str, Any] = {}
        for number in range(-WARM_UP_ROUNDS, self.repeats):
            for name, fetching in names:
                own = torch.tensor(self.run_epoch(name, number % self.repeats, fetching=fetching), dtype=torch.float64)
                all_ranks = [torch.empty_like(own) for _ in range(self.world_size)]
                distributed.all_gather(all_ranks, own)
                counted = torch.stack(all_ranks[:1] if name == ALONE else all_ranks).mean(0).tolist()
                if number >= 0:
                    case = found.setdefault(name + FETCHING * fetching, {})
                    for key, value in zip(("edges", "seconds", "cpu_seconds"), counted, strict=True):
                        case.setdefault(key, []).append(value)
        return found

    def answer(self) -> dict[str, list[float]]:
        """Return the gigabytes per second that the first rank receives: by a socket, alone, and with other requests.

        From now on, ranks may use all cores, like those that answer during sampling.
        """
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        found: dict[str, list[float]] = {SOCKET: [], ONE_ASKS: [], BOTH_ASK: []}
        feature, own = self.stored[EXCHANGED][1], self.book.ids_of(1 - self.rank)
        for number in range(-WARM_UP_ROUNDS, self.repeats):
            order = torch.from_numpy(np.random.default_rng(number % self.repeats).permutation(len(own)))
            asked = torch.split(own[order[: ASKED_ROWS * ASKED_TIMES]], ASKED_ROWS)
            for name, rates in found.items():
                distributed.barrier()
                start, size = time.perf_counter(), 0
                if name == SOCKET:
                    size = self.through_socket(self.stored[LIMIT][1].read(asked[0]).numpy(), len(asked))
                elif name == BOTH_ASK or self.rank == 0:
                    with ThreadPoolExecutor(THREADS) as threads:
                        size = sum(rows.nbytes for rows in threads.map(feature.read, asked))
                seconds = time.perf_counter() - start
                distributed.barrier()
                if number >= 0:
                    rates.append(size / seconds / 1e9)
        return found

    def through_socket(self, rows: Any, times: int) -> int:
        """Send an array repeatedly from the second rank to the first; return its size in bytes."""
        if self.rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as server:
                distributed.broadcast(torch.tensor([server.getsockname()[1]]), 0)
                with server.accept()[0] as connection:
                    memory, left = np.empty_like(rows).data.cast("B"), rows.nbytes * times
                    while left:
                        left -= connection.recv_into(memory)
        else:
            port = torch.zeros(1, dtype=torch.int64)
            distributed.broadcast(port, 0)
            with socket.create_connection(("127.0.0.1", int(port))) as connection:
                for _ in range(times):
                    connection.sendall(rows)
        return int(rows.nbytes) * times

    def count(self, name: str) -> dict[str, int]:
        """Return the bytes that this rank sends for an epoch, and a lower bound for ids, edges and rows of others."""
        traffic, least, width = self.peers.traffic, 0, self.stored[name][1].size().numel()
        distributed.barrier()
        before = traffic.exchanges, traffic.bytes_sent
        distributed.barrier()
        for batch in gf.DataLoader(self.make_pipe(name, 0, fetching=True), 0, seed=0):
            for hop in batch.sampled_subgraphs:
                away = self.book.owners_of(hop.original_column_node_ids) != self.rank
                # An id and a count for each column, a source and an id for each edge; all of them fit into int32.
                least += 8 * int(away.sum()) + 8 * int(hop.sampled_csc.indptr.diff()[away].sum())
            least += (4 + 4 * width) * int((self.book.owners_of(batch.input_nodes) != self.rank).sum())
        distributed.barrier()
        sent = {"exchanges": traffic.exchanges - before[0], "bytes": traffic.bytes_sent - before[1]}
        return {"batches": self.batches, "least": least, **sent}

    def count_rows(self) -> dict[str, int]:
        """Return the number of feature rows that this rank reads for an epoch, independently and jointly."""
        whole, found = self.stored[LIMIT][0], {}
        seeds = np.random.default_rng(0).choice(self.num_nodes, self.world_size * self.batches * self.batch_size)
        items = gf.ItemSet((torch.from_numpy(seeds),), names=("seeds",))
        for name in (BY_ITSELF, JOINT):
            head = gf.DistributedItemSampler(items, self.batch_size)
            sampled = gf.NeighborSampler(head, whole, fanouts=FANOUTS, cooperative=name == JOINT)
            joint: Any = gf.DataLoader(sampled, 0, seed=0)
            found[name] = sum(
                len(batch.sampled_subgraphs[0].exchange.owned if name == JOINT else batch.input_nodes)
                for batch in joint
            )
        return {"batches": self.batches, **found}


def add_up(counts: dict[str, int]) -> dict[str, int]:
    """Return the sums over all ranks."""
    total = torch.tensor(list(counts.values()))
    distributed.all_reduce(total)
    return dict(zip(counts, total.tolist(), strict=True))


def main(given: str) -> None:
    """Run one rank."""
    rank, world_size, folder, sizes = json.loads(given)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    method = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=world_size, timeout=TIMEOUT)
    own = Rank(rank, world_size, sizes)
    cases = own.measure()
    traffic = {name: add_up(own.count(name)) for name in (EXCHANGED, AHEAD)}
    result = {
        "answered": own.answer(),
        "cases": cases,
        "traffic": traffic,
        "hops": len(FANOUTS),
        "rows": add_up(own.count_rows()),
    }
    if rank == 0:
        (Path(folder) / "found").write_text(json.dumps(result))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
