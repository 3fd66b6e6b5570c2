"""Joint sampling: the ranks sample one mini-batch, each around the nodes that it owns."""

import copy
import weakref
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import torch

from graphfeed.datapipes import FanoutSampler, MiniBatch, Transform
from graphfeed.datapipes.pipeline import BatchSizeEstimate
from graphfeed.distributed.cooperative.exchange import Exchange, RowExchange
from graphfeed.distributed.partitioned_graph import PartitionedGraph
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.ops import Key
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, Hop, Picked

NUMBERS: "weakref.WeakKeyDictionary[Peers, count[int]]" = weakref.WeakKeyDictionary()
"""Running numbers of the groups over some peers, in the order in which each rank creates them."""
WHOLE = count()
"""Running numbers of groups over graphs that every rank stores as a whole."""
SPREAD = -0x61C8864680B583EB
"""Spreads ids over ranks that store the whole graph: 2**64 divided by the golden ratio, as a signed integer."""


@dataclass(repr=False)
class JointSubgraph(SampledSubgraph):
    """A rank's share of a joint hop: its columns are the nodes that the rank owns."""

    exchange: RowExchange | None = None
    """Exchange of the sources' rows with their owners."""


@dataclass(repr=False, eq=False)
class JointMiniBatch(MiniBatch):
    """A rank's share of a joint mini-batch."""

    exchange: RowExchange | None = field(default=None, kw_only=True)
    """Exchange of the results for the rank's own seeds with their owners."""


class RankGroup:
    """State shared by the joint mini-batches of a stage: the graph, the sampler, and the exchange of their steps."""

    def __init__(self, sampler: FanoutSampler, world_size: int) -> None:
        self.sampler = sampler.changed(cooperative=False)
        self.graph = sampler.graph
        self.world_size = world_size
        self.runs = count(1)
        if isinstance(self.graph, PartitionedGraph):
            self._name = f"joint part {next(NUMBERS.setdefault(self.graph.peers, count()))}"
        else:
            self._name = f"joint {next(WHOLE)}"

    @cached_property
    def exchange(self) -> Exchange:
        # Created when the first run begins, before threads need it, because planning must have no side effects.
        peers = self.graph.peers if isinstance(self.graph, PartitionedGraph) else shared_peers()
        return Exchange(peers, self._name)

    def owners_of(self, node_type: str | None, ids: torch.Tensor) -> torch.Tensor:
        # Any rank that stores a node may sample it, but all must select the same one.
        holders, parts = self.world_size, torch.zeros(1, dtype=torch.int64, device="cpu")
        if isinstance(self.graph, PartitionedGraph):
            book = self.graph.part.book_of(node_type)
            holders, parts = self.world_size // book.num_parts, book.owners_of(ids).long()
        return parts * holders + (ids.long() * SPREAD >> 33) % holders

    def __reduce__(self) -> Any:
        raise TypeError(
            "stages with cooperative=True can't be sent to another process, which would not be a rank; "
            "use the DataLoader with worker='thread'"
        )

    def __repr__(self) -> str:
        return repr(self.sampler.fanouts)


class JointStep(SamplingGraph):
    """The graph as sampled by all ranks for one mini-batch: each rank samples around the nodes that it owns."""

    def __init__(self, group: RankGroup, run: int, key: Key) -> None:
        self.graph = group.graph
        self._group, self._minibatch = group, (run, key.index)
        self._draws = f"seed {key.seed} in epoch {key.epoch}"
        self.exchanges: list[RowExchange] = []

    @property
    def num_nodes(self) -> int | dict[str, int]:
        return self.graph.num_nodes

    @property
    def num_edges(self) -> int | dict[str, int]:
        return self.graph.num_edges

    def sample_neighbors(self, seeds: ByType, *options: Any, **named: Any) -> SampledSubgraph:
        """Sample in-edges of the nodes that this rank owns among the seeds of all ranks."""
        return self.graph.sample_neighbors(self.plan(seeds).owned, *options, **named)

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Sample one hop around the nodes that this rank owns among those of all ranks."""
        return self.graph.pick(self.plan(nodes).owned, hop)

    def plan(self, needed: ByType) -> RowExchange:
        group, tag = self._group, (*self._minibatch, len(self.exchanges))
        # It sends the owners the ids needed here. All ranks plan each hop, so steps have the same numbers on all ranks.
        self.exchanges.append(group.exchange.plan(tag, needed, self.num_nodes, group.owners_of, self._draws))
        return self.exchanges[-1]


class JointSampler(Transform, draws=True, reads_graph=True, seeded=False):
    """Samples a rank's share of a joint mini-batch, instead of a sampler with `cooperative=True`.

    The columns of each hop are the nodes of the joint hop that this rank owns; each node is sampled by one rank. The
    shares of all ranks together equal the mini-batch that a single machine samples from all of their seeds.
    """

    group: RankGroup
    run: int = field(default=0, repr=False)
    """Number of earlier iterations over the loader; it distinguishes mini-batches of different epochs."""

    def keyed(self, seed: int, epoch: int, start: int) -> "JointSampler":  # noqa: ARG002
        """Return a copy of the stage for another run."""
        _ = self.group.exchange  # ranks must be connected before they compare their runs
        return self.changed(run=next(self.group.runs))

    def leave_run(self) -> None:
        """Announce to the other ranks that this one takes part in no further mini-batch of the run."""
        self.group.exchange.leave(self.run)

    def __call__(self, minibatch: MiniBatch) -> JointMiniBatch:
        key = minibatch.key
        if key is None:
            raise ValueError("a joint mini-batch needs a key, but has none; begin with a DistributedItemSampler")
        # All ranks use the index that the joint mini-batch has on a single machine.
        joint = replace(key, index=key.index // self.group.world_size)
        step = JointStep(self.group, self.run, joint)
        given = copy.copy(minibatch)
        given.key = joint
        sampled = self.group.sampler.changed(graph=step)(given)
        assert sampled.input_nodes is not None
        # One more exchange than hops: that of the outermost nodes, for fetching features.
        step.plan(sampled.input_nodes).count_rows()
        result = JointMiniBatch(exchange=step.exchanges[0])
        vars(result).update(vars(sampled), key=key)
        result.sampled_subgraphs = [
            JointSubgraph(**vars(hop), exchange=exchange)
            for hop, exchange in zip(sampled.sampled_subgraphs or (), reversed(step.exchanges[1:]), strict=True)
        ]
        return result

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate of the sampler for a mini-batch that is not joint."""
        return self.group.sampler.estimate_size(before)
