"""Calculates the memory, the network traffic and the batch rate of a graph in parts, before any machine is rented.

This is the command `graphfeed plan-cluster`.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from graphfeed.datapipes.pipeline import distinct
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.distributed.partition.rank_rate import SECONDS, RankRate, measure_rank
from graphfeed.loader import bytes_text
from graphfeed.ops.arguments import check_count

INT32, INT64 = 4, 8
MESSAGE_BYTES = 592
"""What a question and its answer take beside their ids, edges or rows."""
MADE_NODES, MADE_EDGES, MADE_ROW_BYTES = 1 << 19, 1 << 24, 1 << 28
"""What a graph has at most that is made to measure the rate of a rank."""


@dataclass(frozen=True)
class ClusterPlan:
    """What a graph in parts takes: the memory of each machine, and the network per mini-batch. `str` of it is a table.

    Assumes that nodes are assigned evenly and without regard to edges, that each machine makes mini-batches of its own,
    and that every node has the average number of in-edges, with uniform sources. Where some nodes are the sources of
    very many edges, mini-batches have fewer nodes. Mini-batches in flight, caches and your model take memory on top.
    Whole numbers are annotated with the least value, and with what `graphfeed plan-cluster --help` says of them.

    Raises:
        TypeError: A number that is not whole.
        ValueError: A number out of range.

    Example:
        >>> plan = ClusterPlan(num_nodes=1_000_000, num_edges=10_000_000, machines=4, fanouts=[10, 10], row_bytes=32)
        >>> [round(edges) for _, edges in plan.hops], list(plan.traffic)
        ([10240, 112013], ['hop 1', 'hop 2', 'features'])
        >>> {name: round(size) for name, size in plan.memory.items()}
        {'graph': 53000008, 'features': 8000000}
    """

    num_nodes: Annotated[int, 1, "the number of nodes, of all types"]
    num_edges: Annotated[int, 0, "the number of edges, of all types"]
    machines: Annotated[int, 1, "the number of machines"]
    fanouts: Sequence[int]
    """One per hop, the hop at the seeds last; -1 takes all in-edges."""
    batch_size: Annotated[int, 1, "the seeds of a mini-batch"] = 1024
    row_bytes: Annotated[int, 0, "the features of a node: 512 for 128 numbers in float32"] = 0
    id_bytes: Annotated[int, 4, "4 where node ids are int32, as they may be below 2**31 nodes"] = INT64
    start_bytes: Annotated[int, 4, "4 where column starts are int32, of which sampling keeps a copy in int64"] = INT64
    type_bytes: Annotated[int, 0, "1 per edge for up to 256 edge types, 4 for more"] = 0
    ranks_per_machine: Annotated[int, 1, "the processes of a machine, each with a part, which share their columns"] = 1
    gbit_per_second: float = 10.0
    """What a machine can send, and receive at the same time."""
    num_items: Annotated[int, 0, "the items of an epoch, to say how long it takes"] = 0
    rank_rate: RankRate | None = None
    """What a mini-batch costs a rank; see `measured`. None: the network alone is calculated."""
    edge_id_bytes: Annotated[int, 0, "0 where an edge's id is its position in the graph, as without features"] = INT64

    def __post_init__(self) -> None:
        for name, (least, _) in NUMBERS.items():
            check_count(name, getattr(self, name), least)
        if not self.fanouts:
            raise ValueError("fanouts must have one number per hop, but is empty")
        for fanout in self.fanouts:
            check_count("a fan-out", fanout, -1)
        if not 0 < self.gbit_per_second < inf:
            raise ValueError(f"gbit_per_second must be a positive number, but is {self.gbit_per_second}")

    @property
    def memory(self) -> dict[str, float]:
        """The bytes that a machine holds: in the parts, in the columns that its processes share, and in features."""
        ranks, parts = self.ranks_per_machine, self.machines * self.ranks_per_machine
        starts = self.start_bytes * (self.num_nodes + 1)
        # Each process has its own copy, of what it samples: only shared columns, where these have all parts.
        copy = INT64 * (self.num_nodes + 1) if self.start_bytes < INT64 else 0
        copy_of_part = copy if self.machines > 1 or ranks == 1 else 0
        owners = (smallest_dtype(parts).itemsize + least_bytes(self.num_nodes)) * self.num_nodes if parts > 1 else 0
        # Edges without ids of their own are numbered from the whole graph's column starts.
        numbers = 0 if self.edge_id_bytes else starts
        edges = (self.id_bytes + self.edge_id_bytes + self.type_bytes) * self.num_edges / self.machines
        shared = {"shared columns": starts + ranks * copy + edges} if ranks > 1 else {}
        rows = {"features": self.row_bytes * self.num_nodes / self.machines} if self.row_bytes else {}
        return {"graph": ranks * (starts + copy_of_part + owners) + numbers + edges} | shared | rows

    @property
    def hops(self) -> list[tuple[float, float]]:
        """The nodes whose in-edges are sampled, and the sampled edges, of each hop; the hop at the seeds first."""
        hops = []
        columns, degree = float(self.seeds), self.num_edges / self.num_nodes
        for fanout in reversed(self.fanouts):
            hops.append((columns, columns * (degree if fanout < 0 else min(degree, fanout))))
            columns = distinct(*hops[-1], self.num_nodes)
        return hops

    @property
    def seeds(self) -> int:
        """The seeds of a mini-batch, of which there can't be more than nodes."""
        return min(self.batch_size, self.num_nodes)

    @property
    def nodes_and_edges(self) -> float:
        """The nodes and edges of a mini-batch, in all hops: what it costs grows with them."""
        return self.input_nodes + sum(columns + edges for columns, edges in self.hops)

    @property
    def input_nodes(self) -> float:
        """The nodes whose features a mini-batch fetches."""
        return distinct(*self.hops[-1], self.num_nodes)

    @property
    def traffic(self) -> dict[str, float]:
        """The bytes that all machines together send for one mini-batch, in each exchange that it waits for."""
        if self.machines == 1:
            return {}
        remote, node = 1 - 1 / self.machines, least_bytes(self.num_nodes)
        heads = (self.machines - 1) * self.ranks_per_machine * MESSAGE_BYTES
        edge = node + least_bytes(self.num_edges) + self.type_bytes
        sizes = {f"hop {number}": n * (node + INT32) + m * edge for number, (n, m) in enumerate(self.hops, 1)}
        rows = {"features": self.input_nodes * (node + self.row_bytes)} if self.row_bytes else {}
        return {name: heads + remote * size for name, size in (sizes | rows).items()}

    @property
    def network_rate(self) -> float:
        """The most mini-batches that the network lets each machine make, while all of them do."""
        # For each mini-batch of its own, a machine sends its questions, and as much of answers as it gets.
        return self.gbit_per_second * 1e9 / 8 / sum(self.traffic.values()) if self.traffic else inf

    @property
    def batches_per_second(self) -> float:
        """The most mini-batches that each machine makes: by its network, and by its ranks if these were measured."""
        if self.rank_rate is None:
            return self.network_rate
        return min(self.network_rate, self.rank_rate.batches_per_second(1 - 1 / self.machines, self.ranks_per_machine))

    def measured(self, seconds: float = SECONDS) -> "ClusterPlan":
        """Return the plan with the rate of a rank, measured on this machine as one of those to come.

        Mini-batches are made of a smaller graph with as many edges per node, for some seconds in one process and in
        two. Costs are those of the plan's mini-batches, by their numbers of nodes and edges. Edge types are left out.
        """
        degree = max(1, round(self.num_edges / self.num_nodes))
        nodes = min(self.num_nodes, MADE_NODES, MADE_EDGES // degree, MADE_ROW_BYTES // max(self.row_bytes, 1))
        small = replace(self, num_nodes=max(nodes, 1), num_edges=max(nodes, 1) * degree)
        ratio = self.nodes_and_edges / small.nodes_and_edges
        return replace(self, rank_rate=measure_rank(small, seconds).scaled(ratio))

    def __str__(self) -> str:
        """Return the memory per machine, the bytes per mini-batch, and the rate."""
        lines = []
        for title, sizes in (("memory per machine", self.memory), ("network per mini-batch", self.traffic)):
            rows = [*sizes.items(), ("together", sum(sizes.values()))]
            lines += [title, *(f"  {name:<16}{bytes_text(size):>10}" for name, size in rows)]
        rate, by = self.batches_per_second, ""
        if self.rank_rate is not None:
            remote, found = 1 - 1 / self.machines, self.rank_rate
            cost, most = found.cost(remote), found.most_ranks(remote)
            together = min(self.network_rate, found.batches_per_second(remote, most))
            lines += [
                f"a rank makes at most {1 / cost.seconds:,.1f} mini-batches/s, and keeps "
                f"{cost.cpu_seconds / cost.seconds:.1f} of this machine's {found.cores} cores busy",
                f"up to {most} ranks per machine make more, at most {together:,.1f} mini-batches/s"
                if most > 1
                else "more than one rank per machine makes no more",
            ]
            by = " by its network" if rate == self.network_rate else " by its ranks"
        lines.append(f"each machine makes at most {rate:,.1f} mini-batches/s{by}, all {rate * self.machines:,.1f}")
        if self.num_items:
            seconds = self.num_items / self.batch_size / (rate * self.machines)
            lines.append(f"an epoch of {self.num_items:,} items takes at least {seconds:,.1f} s")
        return "\n".join(lines)


HINTS = get_type_hints(ClusterPlan, include_extras=True)
NUMBERS = {name: get_args(hint)[1:] for name, hint in HINTS.items() if get_origin(hint) is Annotated}
"""The fields that are whole numbers: the least value, and what it is."""


def least_bytes(count: int) -> int:
    """Return the bytes of an id below a number where it takes no more than it needs, as in messages."""
    return INT32 if count <= 1 << 31 else INT64


def fanouts(text: str) -> list[int]:
    """Return the numbers between commas."""
    return [int(number) for number in text.split(",")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--fanouts", type=fanouts, required=True, help="one per hop, the hop at the seeds last: 10,10")
    parser.add_argument("--gbit", type=float, default=10.0, help="what a machine can send per second (default: 10)")
    parser.add_argument(
        "--measure",
        action="store_true",
        help=f"make mini-batches on this machine, twice for {SECONDS:g} seconds, to tell the rate of its ranks too",
    )
    for name, (_, text) in NUMBERS.items():
        default = getattr(ClusterPlan, name, None)
        option = f"--{name.removeprefix('num_').replace('_', '-')}"
        text += "" if default is None else " (default: %(default)s)"
        parser.add_argument(option, dest=name, type=int, default=default, required=default is None, help=text)


def run(options: Any) -> None:
    """Print what a graph in parts takes."""
    given = {name: getattr(options, name) for name in NUMBERS}
    plan = ClusterPlan(**given, fanouts=options.fanouts, gbit_per_second=options.gbit)
    sys.stdout.write(f"{plan.measured() if options.measure else plan}\n")
