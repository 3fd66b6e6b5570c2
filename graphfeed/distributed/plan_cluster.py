"""Calculates the memory, the network traffic and the batch rate of a graph in parts, before any machine is rented.

This is the command `graphfeed plan-cluster`.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes.pipeline.size_estimate import distinct
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.loader.explain import bytes_text
from graphfeed.ops.checks import check_count
from graphfeed.storage.features.feature_cache import rows_within

INT32, INT64 = torch.int32.itemsize, torch.int64.itemsize
QUESTION_BYTES, ANSWER_BYTES = 320, 256
"""What a message takes beside its ids, edges or rows."""
FEATURE_DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8")


def sent_bytes(count: int) -> int:
    """Return the bytes on the network of an id below a number: the ids of a message are sent as int32 if all fit."""
    return INT32 if count <= 1 << 31 else INT64


class Hop(NamedTuple):
    """What is sampled in a hop of one mini-batch."""

    columns: float
    """The nodes whose in-edges are sampled."""
    edges: float


@dataclass(frozen=True)
class ClusterPlan:
    """What a graph in parts takes: the memory of each machine, and the network per mini-batch. `str` of it is a table.

    Assumes that nodes are assigned to machines evenly and without regard to edges, that each machine makes mini-batches
    of its own, and that every node has the average number of in-edges, with uniform sources. If some nodes are the
    sources of very many edges, mini-batches have fewer nodes than planned.

    By the same assumption, nodes are met equally often, so a cache that is full saves the share of what it has room
    for, whichever it keeps. Where some nodes are met far more often, a cache of rows saves more. How much more depends
    on how often each node is met, which the numbers of nodes and edges don't tell: `DataLoader.explain()` counts it.
    A cache of columns may save no more even then, because the columns of such nodes are often long.

    The memory of a part is, for all nodes of the graph, the start of their columns, their part and their place there;
    and its share of the edges, their ids and the rows. Several processes of a machine also put their columns together
    in shared memory, once. Mini-batches in flight and your model come on top.

    Raises:
        TypeError: A number that is not whole.
        ValueError: A number or a dtype out of range.

    Example:
        >>> plan = ClusterPlan(num_nodes=1_000_000, num_edges=10_000_000, machines=4, fanouts=[10, 10], feature_width=8)
        >>> plan.exchanges, [round(hop.edges) for hop in plan.hops]
        (3, [10240, 112013])
        >>> round(plan.graph_bytes), round(plan.feature_bytes)
        (53000008, 8000000)
    """

    num_nodes: int
    num_edges: int
    machines: int
    fanouts: Sequence[int]
    """One per hop, the hop at the seeds last; -1 takes all in-edges."""
    batch_size: int = 1024
    """The seeds of a mini-batch."""
    feature_width: int = 0
    """The values per node."""
    feature_dtype: torch.dtype = torch.float32
    id_dtype: torch.dtype = torch.int64
    """The dtype of node ids; int32 is enough below 2**31 nodes."""
    has_types: bool = False
    """Whether there are edge types: a byte per edge, in memory and on the network."""
    gbit_per_second: float = 10.0
    """What a machine can send, and receive at the same time."""
    ranks_per_machine: int = 1
    """The processes of a machine, each of which holds a part."""
    row_cache_bytes: int = 0
    """What each process keeps rows of other machines in: `cpu_cached_feature(..., max_cache_size_in_bytes)`."""
    column_cache_bytes: int = 0
    """What each process keeps columns of other machines in: `PartitionedGraph(..., max_cache_size_in_bytes)`."""

    def __post_init__(self) -> None:
        for name in ("num_nodes", "machines", "batch_size", "ranks_per_machine"):
            check_count(name, getattr(self, name), 1)
        for name in ("num_edges", "feature_width", "row_cache_bytes", "column_cache_bytes"):
            check_count(name, getattr(self, name), 0)
        if self.row_cache_bytes and not self.feature_width:
            raise ValueError("row_cache_bytes needs rows to keep, but feature_width is 0")
        if 0 < self.column_cache_bytes <= self.column_index_bytes:
            raise ValueError(
                f"column_cache_bytes must be 0 or more than the {self.column_index_bytes} that it takes to find columns"
                f", but is {self.column_cache_bytes}"
            )
        if not self.fanouts:
            raise ValueError("fanouts must have one number per hop, but is empty")
        for fanout in self.fanouts:
            check_count("a fan-out", fanout, -1)
        if self.id_dtype not in (torch.int32, torch.int64):
            raise ValueError(f"id_dtype must be torch.int32 or torch.int64, but is {self.id_dtype}")
        if self.id_dtype == torch.int32 and self.num_nodes >= 1 << 31:
            raise ValueError(f"id_dtype must be torch.int64 for {self.num_nodes} nodes, but is torch.int32")
        if not 0 < self.gbit_per_second < inf:
            raise ValueError(f"gbit_per_second must be a positive number, but is {self.gbit_per_second}")

    @property
    def parts(self) -> int:
        """The number of parts: one for each process."""
        return self.machines * self.ranks_per_machine

    @property
    def merged_bytes(self) -> float:
        """The bytes of the columns of all parts of a machine, which its processes put together."""
        if self.ranks_per_machine == 1:
            return 0.0
        return INT64 * (self.num_nodes + 1) + self.edge_bytes * self.num_edges / self.machines

    @property
    def graph_bytes(self) -> float:
        """The bytes of one part of the graph."""
        place = INT64 if self.num_nodes > 1 << 31 else INT32
        per_node = INT64 + (smallest_dtype(self.parts).itemsize + place if self.parts > 1 else 0)
        return INT64 + per_node * self.num_nodes + self.edge_bytes * self.num_edges / self.parts

    @property
    def feature_bytes(self) -> float:
        """The bytes of the rows that one machine owns."""
        return self.row_bytes * self.num_nodes / self.machines

    @property
    def edge_bytes(self) -> int:
        """The bytes of an edge where it lies: its source, its id, and its type if there are any."""
        return self.id_dtype.itemsize + INT64 + self.has_types

    @property
    def sent_id_bytes(self) -> int:
        """The bytes of the id of a node on the network."""
        return sent_bytes(self.num_nodes)

    @property
    def sent_edge_bytes(self) -> int:
        """The bytes of an edge on the network."""
        return self.sent_id_bytes + sent_bytes(self.num_edges) + self.has_types

    @property
    def row_bytes(self) -> int:
        """The bytes of the features of one node."""
        return self.feature_width * self.feature_dtype.itemsize

    @property
    def cache_bytes(self) -> int:
        """The bytes of the caches of one machine, when they are full."""
        return self.ranks_per_machine * (self.row_cache_bytes + self.column_cache_bytes)

    @property
    def column_index_bytes(self) -> int:
        """The bytes that it takes to find the columns of a cache: where each begins, and whether it is there."""
        return INT64 * (self.num_nodes + 1) + self.num_nodes

    @property
    def kept_rows(self) -> float:
        """The share of the other machines' rows that a cache has room for."""
        away = self.away * self.num_nodes
        return min(1.0, rows_within(self.row_cache_bytes, self.row_bytes) / away) if away else 0.0

    @property
    def kept_columns(self) -> float:
        """The share of the other machines' columns that a cache has room for."""
        away, room = self.away * self.num_edges * self.edge_bytes, self.column_cache_bytes - self.column_index_bytes
        return min(1.0, max(0, room) / away) if away else 0.0

    @cached_property
    def hops(self) -> list[Hop]:
        """The hops of a mini-batch, the one at the seeds first."""
        hops = []
        columns = float(min(self.batch_size, self.num_nodes))
        degree = self.num_edges / self.num_nodes
        for fanout in reversed(self.fanouts):
            hops.append(Hop(columns, columns * (degree if fanout < 0 else min(degree, fanout))))
            columns = distinct(columns, hops[-1].edges, self.num_nodes)
        return hops

    @property
    def input_nodes(self) -> float:
        """The nodes whose features a mini-batch fetches."""
        return distinct(*self.hops[-1], self.num_nodes)

    @property
    def exchanges(self) -> int:
        """How often a mini-batch waits for other machines: once per hop, and once for the features.

        It does not wait for what caches have in full.
        """
        hops, rows = self.away * (1 - self.kept_columns), self.away * (1 - self.kept_rows)
        return len(self.fanouts) * (hops > 0) + (self.feature_width > 0 and rows > 0)

    @property
    def away(self) -> float:
        """The share of nodes that other machines own."""
        return 1 - 1 / self.machines

    def _others(self, asking: float) -> int:
        """Return how many processes are asked, given the share of nodes that are asked for."""
        return self.parts - self.ranks_per_machine if asking else 0

    def hop_traffic(self, hop: Hop) -> tuple[float, float]:
        """Return the bytes of the questions and of the answers of a hop, for one mini-batch."""
        asking = self.away * (1 - self.kept_columns)
        others, asked, sent = self._others(asking), asking * hop.columns, asking * hop.edges
        questions = others * QUESTION_BYTES + asked * self.sent_id_bytes
        return questions, others * ANSWER_BYTES + asked * INT32 + sent * self.sent_edge_bytes

    def feature_traffic(self, num_nodes: float) -> tuple[float, float]:
        """Return the bytes of the questions and of the answers for the features of some nodes."""
        if self.feature_width == 0:
            return 0.0, 0.0
        asking = self.away * (1 - self.kept_rows)
        others, asked = self._others(asking), asking * num_nodes
        return others * QUESTION_BYTES + asked * self.sent_id_bytes, others * ANSWER_BYTES + asked * self.row_bytes

    @property
    def network_bytes(self) -> float:
        """What all machines together send for one mini-batch."""
        return sum(map(sum, map(self.hop_traffic, self.hops))) + sum(self.feature_traffic(self.input_nodes))

    @property
    def batches_per_second(self) -> float:
        """The most mini-batches that the network lets each machine make, while all of them do."""
        # For each mini-batch of its own, a machine sends its questions, and as much of answers as it gets.
        return inf if not self.network_bytes else self.gbit_per_second * 1e9 / 8 / self.network_bytes

    def __str__(self) -> str:
        """Return the memory per machine, the bytes per mini-batch, and the rate."""
        graph = self.ranks_per_machine * self.graph_bytes
        shared = [("  columns, shared", bytes_text(self.merged_bytes))] if self.merged_bytes else []
        caches = [("  caches", bytes_text(self.cache_bytes))] if self.cache_bytes else []
        rows: list[tuple[str, ...]] = [
            ("memory per machine", ""),
            ("  graph", bytes_text(graph)),
            *shared,
            ("  features", bytes_text(self.feature_bytes)),
            *caches,
            ("  together", bytes_text(graph + self.merged_bytes + self.feature_bytes + self.cache_bytes)),
            ("one mini-batch", "nodes", "edges", "questions", "answers"),
        ]
        for number, hop in enumerate(self.hops, 1):
            sizes = map(bytes_text, self.hop_traffic(hop))
            rows.append((f"  hop {number}", f"{hop.columns:,.0f}", f"{hop.edges:,.0f}", *sizes))
        sizes = map(bytes_text, self.feature_traffic(self.input_nodes))
        rows.append(("  features", f"{self.input_nodes:,.0f}", "", *sizes))
        rows.append(("  together", "", "", "", bytes_text(self.network_bytes)))
        lines = [f"{row[0]:<20}{''.join(f'{cell:>13}' for cell in row[1:])}".rstrip() for row in rows]
        if self.machines == 1:
            return "\n".join([*lines, "one machine holds everything; nothing crosses the network"])
        kept = {"rows": (self.row_cache_bytes, self.kept_rows), "columns": (self.column_cache_bytes, self.kept_columns)}
        lines += [
            f"caches have room for {share:.1%} of the others' {what}, and save as much if all are met as often"
            for what, (size, share) in kept.items()
            if size
        ]
        if not self.exchanges:
            return "\n".join([*lines, "once the caches are full, nothing crosses the network"])
        rate = self.batches_per_second
        return "\n".join(
            [
                *lines,
                f"{self.exchanges} exchanges per mini-batch",
                f"at {self.gbit_per_second:g} Gbit/s, each of {self.machines} machines makes at most {rate:,.1f} "
                f"mini-batches/s, together {rate * self.machines:,.1f}",
            ]
        )


def parse_fanouts(text: str) -> list[int]:
    """Return the numbers between commas."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers between commas, such as 10,10, but is {text!r}") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--nodes", type=int, required=True, help="the number of nodes, of all types")
    parser.add_argument("--edges", type=int, required=True, help="the number of edges, of all types")
    parser.add_argument("--machines", type=int, required=True, help="the number of machines")
    parser.add_argument(
        "--ranks-per-machine", type=int, default=1, help="processes per machine, each with a part (default: 1)"
    )
    parser.add_argument(
        "--fanouts", type=parse_fanouts, required=True, help="one per hop, the hop at the seeds last, such as 10,10"
    )
    parser.add_argument("--batch-size", type=int, default=1024, help="the seeds of a mini-batch (default: %(default)s)")
    parser.add_argument("--width", type=int, default=0, help="the values per node (default: no features)")
    parser.add_argument(
        "--dtype", choices=FEATURE_DTYPES, default="float32", help="that of the features (default: %(default)s)"
    )
    parser.add_argument(
        "--ids", choices=("int32", "int64"), default="int64", help="the dtype of node ids (default: %(default)s)"
    )
    parser.add_argument("--types", action="store_true", help="there are edge types")
    parser.add_argument("--gbit", type=float, default=10.0, help="the network in Gbit/s (default: %(default)g)")
    for name, kept in {"row": "rows of features", "column": "in-edges"}.items():
        parser.add_argument(
            f"--{name}-cache",
            type=float,
            default=0.0,
            metavar="GB",
            help=f"keep other machines' {kept} in each process",
        )


def run(options: Any) -> None:
    """Print what a graph in parts takes."""
    plan = ClusterPlan(
        options.nodes,
        options.edges,
        options.machines,
        options.fanouts,
        options.batch_size,
        options.width,
        getattr(torch, options.dtype),
        getattr(torch, options.ids),
        options.types,
        options.gbit,
        options.ranks_per_machine,
        round(options.row_cache * 1e9),
        round(options.column_cache * 1e9),
    )
    sys.stdout.write(f"{plan}\n")
