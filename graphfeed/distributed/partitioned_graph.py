"""A partitioned graph: the neighbors of each node are sampled by the rank that owns it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.ranks.owners import COUNTS, merge_answers, ranks_of_a_part, request_from_owners
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.ops.arguments import check_ids, checked, mark_below
from graphfeed.ops.rows import take_small
from graphfeed.ops.sampling import JoinedHops, Ranked, Walks
from graphfeed.storage import SampledSubgraph, SamplingGraph, SamplingRequest, TemporalQuery
from graphfeed.storage.graph import (
    ByType,
    Draws,
    FusedCSCSamplingGraph,
    Hop,
    Picked,
    Seeds,
    WalkRequest,
    Way,
    edge_times_of,
    group_edges,
    in_hop_order,
    one_draw,
    open_seeds,
    parse_seeds,
    pick_hop,
    stack_seed_times,
    stack_trees,
)

TOGETHER_BYTES = 1 << 26
"""Memory for the samples of mini-batches sampled together; with more, requests would hardly become fewer."""


class PartitionedGraph(SamplingGraph):
    """A graph of which each rank stores one part. All samplers work with it as with the whole graph.

    Mini-batches are bit-identical to those of the whole graph on one machine, for any number of parts and any
    assignment of nodes to parts. Any number of threads may sample from it, but not worker processes.

    A hop costs one exchange between the ranks, for all edge types together. Ranks of one machine store the same part:
    they open the same files, so the system caches their pages once, and each rank sends requests to only one rank of
    every other machine. A single part is the whole graph, and is sampled without exchanges.

    Args:
        part: This rank's part. With P parts and R ranks, rank `i` stores part `i // (R / P)`.
        peers: The ranks. Default: those of the default process group, shared with other graphs and features.

    Raises:
        ValueError: The number of ranks is not a multiple of the number of parts, or another rank stores this part.

    Example:
        >>> from graphfeed import from_coo
        >>> from graphfeed.distributed import cut_graph
        >>> whole = from_coo(([0, 1, 2], [1, 2, 2]), num_nodes=3)
        >>> graph = PartitionedGraph(cut_graph(whole, torch.tensor([0, 0, 0]), part=0))  # a single rank owns all nodes
        >>> graph.in_subgraph(torch.tensor([2])).original_edge_ids.tolist()
        [1, 2]
    """

    @checked
    def __init__(self, part: GraphPart, peers: Peers | None = None) -> None:
        self.part = part
        self.peers = shared_peers() if peers is None else peers
        check_held_part(part.book, self.peers, part.number)
        # Serve the in-edges that this rank owns. Registering doesn't wait for other ranks.
        self._name = self.peers.serve("graph", self._sample)
        self.peers.comparison.describe_part(
            self._name,
            {"nodes": part.columns.num_nodes, "assignment": int(part.book.checksum), "identity": part.identity},
        )

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes of the whole graph; by node type if it has types."""
        return self.part.columns.num_nodes

    @property
    def edge_types(self) -> list[str]:
        """Edge types in the order of fan-outs; empty if the graph has no types."""
        return self.part.columns.edge_types

    @property
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges of the whole graph; by edge type if it has types."""
        return self.part.num_edges

    def node_attribute(self, name: str) -> torch.Tensor:
        """Return an attribute of all nodes, such as timestamps, which every rank stores."""
        return self.part.columns.node_attribute(name)

    def validate(self, request: SamplingRequest) -> None:
        """Raise the errors of the whole graph if a request is not valid for it."""
        self.part.columns.validate(request)

    def prepare(self, request: SamplingRequest) -> None:
        """Compute derived arrays of this rank's part that a request needs; other ranks prepare theirs."""
        self.part.columns.prepare(request)

    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample one hop of neighbors around global ids, with the same result as on the whole graph.

        Raises:
            RankLostError: Another rank ended or froze.
        """
        request, drawn = SamplingRequest((fanouts,), replace, probs_name), ops.draw_key() if key is None else key
        return self.pick(seeds, Hop(request, one_draw(drawn)))[0]

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample neighbors with LABOR; see `FusedCSCSamplingGraph.sample_layer_neighbors`."""
        request = SamplingRequest((fanouts,), replace, probs_name, "labor")
        return self.pick(seeds, Hop(request, parse_seeds(random_seed, seed2_contribution)))[0]

    def sample(
        self,
        seeds: Sequence[Seeds],
        request: SamplingRequest,
        draws: Sequence[Sequence[Draws]],
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops of several mini-batches; see `SamplingGraph.sample`.

        One request per owner and hop serves all of them. Two ranks that exchange produce 2.6 to 2.9 times as many
        mini-batches of 64 seeds per second of CPU time as one by one, and 1.1 times as many of 1,024 seeds (a graph
        shaped like ogbn-products, fan-outs 15, 10 and 5).
        """
        whole = self._whole()
        sample = super().sample if whole is None else whole.sample
        return sample(seeds, request, draws)

    def sample_joined(self, seeds: ByType | Seeds, request: SamplingRequest, keys: Sequence[Any]) -> JoinedHops:
        """Sample and join all hops; see `SamplingGraph.sample_joined`."""
        whole = self._whole()
        sample_joined = super().sample_joined if whole is None else whole.sample_joined
        return sample_joined(seeds, request, keys)

    def sample_each_joined(
        self, seeds: Sequence[Seeds], request: SamplingRequest, draws: Sequence[Sequence[Draws]]
    ) -> list[JoinedHops]:
        """Sample and join all hops of several mini-batches; see `SamplingGraph.sample_each_joined`."""
        whole = self._whole()
        sample = super().sample_each_joined if whole is None else whole.sample_each_joined
        return sample(seeds, request, draws)

    def way(self, request: SamplingRequest, *, on_cpu: bool = True) -> Way:
        """Return how a request is served: a single part is sampled as the whole graph, several hop by hop."""
        if self.part.book.num_parts == 1:
            return self.part.columns.way(request, on_cpu=on_cpu)
        reason = f"each hop is sampled by the ranks that store its nodes, {self.part.book.num_parts} parts"
        return Way(False, reason, TOGETHER_BYTES)

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Sample one hop with one request per owner; see `SamplingGraph.pick`."""
        if (whole := self._whole()) is not None:
            return whole.pick(nodes, hop)
        (found,) = self.pick_each([nodes], [hop])
        return found

    def walk(
        self, starts: torch.Tensor, numbers: torch.Tensor, request: WalkRequest, key: int, *, edge_ids: bool
    ) -> Walks:
        """Walk with one request per owner and step, or in one call if there is a single part."""
        whole = self._whole()
        walk = super().walk if whole is None else whole.walk
        return walk(starts, numbers, request, key, edge_ids=edge_ids)

    def push(self, seeds: torch.Tensor, top: int, alpha: int, bound: int, groups: torch.Tensor) -> Ranked:
        """Push mass with one request per owner and round, or in one call if there is a single part."""
        whole = self._whole()
        push = super().push if whole is None else whole.push
        return push(seeds, top, alpha, bound, groups)

    def _whole(self) -> FusedCSCSamplingGraph | None:
        """Return the whole graph if there is a single part, else None. The first call waits for all ranks."""
        self.peers.comparison.check_part(self._name)
        return self.part.columns if self.part.book.num_parts == 1 else None

    def pick_each(self, nodes: Sequence[ByType], hops: Sequence[Hop]) -> list[Picked]:
        """Call `pick` for one hop of several mini-batches, with one request per owner."""
        columns, request, further = self.part.columns, hops[0].request, dict[str, torch.Tensor]()
        # LABOR has two draw keys per request, so mini-batches can't share one.
        if len(nodes) > 1 and request.strategy == "labor":
            return super().pick_each(nodes, hops)
        self.validate(request)
        if request.temporal is not None:
            # Each node is sent with its timestamp, and with its window if there is one.
            own_seeds = [Seeds(own, hop.times, hop.windows) for own, hop in zip(nodes, hops, strict=True)]
            asked = [stack_seed_times(columns, own, request) for own in own_seeds]
            further["times"] = torch.cat([own.times for own in asked])
            windows = [own.windows for own in asked if own.windows is not None]
            further |= {"windows": torch.cat(windows)} if windows else {}
        opened = [open_seeds(columns, own) for own in nodes]
        if hops[0].trees is not None:
            trees = [stack_trees(hop, own) for hop, (own, _) in zip(hops, opened, strict=True)]
            further["trees"] = torch.cat([own for own in trees if own is not None])
        ids, draws = [own for _, own in opened], hops[0].draws
        sizes = [len(own) for own in ids]
        if len(nodes) > 1:
            draws = tuple(int(hop.draws[0][0]) for hop in hops), 0
            further["minibatches"] = torch.from_numpy(np.repeat(np.arange(len(nodes), dtype=np.uint16), sizes))
        # One request per owner serves all mini-batches, whose hops are then cut out of the merged responses.
        offsets, edges = self._request_from_owners(
            torch.cat(ids), as_options(hops[0]._replace(draws=draws)), request, further
        )
        found: list[Picked] = []
        for (seeds, _), (low, high) in zip(opened, pairwise(np.cumsum([0, *sizes]).tolist()), strict=True):
            first, last = int(offsets[low]), int(offsets[high])
            # The responses are in the order of the picks.
            own = {name: values[first:last] for name, values in edges.items()}
            if len(nodes) > 1 and not isinstance(seeds, dict):
                # The ids outlive the responses of all mini-batches.
                own["edge_ids"] = own["edge_ids"].clone()
            found.append(group_edges(columns, seeds, offsets[low : high + 1] - first, own))
        return found

    def _request_from_owners(
        self, ids: torch.Tensor, options: Mapping[str, Any], request: SamplingRequest, further: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Return the offset of each node's first pick, and the values of the picks from their owners."""
        check_ids("seeds", ids, self.part.columns.total_num_nodes)
        # `further` has one value per node, sent to the node's owner.
        questions = {"ids": ids, **further}
        answers = list(request_from_owners(self.peers, self._name, self.part.book, ids, options, questions))
        dtypes = {"sources": self.part.columns.indices.dtype, "edge_ids": self.part.edge_id_dtype}
        dtypes |= {name: values.dtype for name, values in further_values(self.part.columns, request)}
        return merge_answers(answers, dtypes)

    def _sample(self, options: Mapping[str, Any], questions: Mapping[str, torch.Tensor]) -> Tensors:
        """Sample in-edges of nodes of this rank's part, for another rank or this one."""
        columns = self.part.columns
        ids = questions["ids"].to(columns.indices.dtype)
        check_ids("seeds", ids, columns.total_num_nodes)
        # So that reading doesn't check the ids and the positions again.
        mark_below(ids, columns.total_num_nodes)
        hop, moments = from_options(options), None
        if "minibatches" in questions:
            keys = np.array(hop.draws[0], dtype=np.uint64)[questions["minibatches"].numpy()]
            hop = hop._replace(draws=(torch.from_numpy(keys), 0))
        if hop.request.temporal is not None:
            windows = questions["windows"].long() if "windows" in questions else None
            moments = ops.SeedTimes(questions["times"].long(), windows)
        trees = questions["trees"].long() if "trees" in questions else None
        picks = in_hop_order(columns, ids, pick_hop(columns, ids, hop, moments, trees))
        mark_below(picks.positions, columns.indices.numel())
        counts, sources, edge_ids = self.part.read_edges(ids, picks)
        further = {name: take_small(values, picks.positions) for name, values in further_values(columns, hop.request)}
        return {COUNTS: counts, "sources": sources, "edge_ids": edge_ids, **further}

    def __reduce__(self) -> Any:
        raise TypeError(
            "a PartitionedGraph can't be sent to another process, which would not be a rank; "
            "use the DataLoader with worker='thread'"
        )

    def __repr__(self) -> str:
        part = f"part {self.part.number} of {self.part.book.num_parts}"
        return f"PartitionedGraph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, {part})"


def further_values(columns: FusedCSCSamplingGraph, request: SamplingRequest) -> list[tuple[str, torch.Tensor]]:
    """Return the edge arrays that are sent in addition to sources and ids, by name."""
    edges = []
    if columns.type_per_edge is not None:
        edges.append(("types", columns.type_per_edge))
    if request.temporal is not None and request.temporal.hop_time == "edge":
        edges.append(("times", edge_times_of(columns, request.temporal)))
    return edges


def as_options(hop: Hop) -> dict[str, Any]:
    """Return the options of a hop in JSON types."""
    request, query = {**vars(hop.request), "fanouts": [hop.fanout.tolist()]}, hop.request.temporal
    if query is not None:
        # The timestamps and windows themselves are sent with the seeds, made inclusive.
        request["temporal"] = {**vars(query), "pre_time_window": None, "inclusive": False}
    return {"draws": hop.draws, "request": request}


def from_options(options: Mapping[str, Any]) -> Hop:
    given, (keys, share) = options["request"], options["draws"]
    temporal = None if given["temporal"] is None else TemporalQuery(**given["temporal"])
    return Hop(SamplingRequest(**{**given, "temporal": temporal}), (tuple(keys), share))


def check_held_part(book: PartBook, peers: Peers, part: int | None = None) -> int:
    """Return the part that this rank stores; raise if `part` is a different one."""
    held = peers.rank // ranks_of_a_part(book, peers)
    if part is not None and part != held:
        raise ValueError(f"rank {peers.rank} must have part {held}, but got part {part}")
    return held
