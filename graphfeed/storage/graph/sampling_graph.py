"""All that samplers ask of a graph, made of the one hop that it offers."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch

from graphfeed.ops import draw_key
from graphfeed.ops.arguments import as_ids, brief, check_count, check_ids, checked
from graphfeed.ops.rows import Each
from graphfeed.ops.sampling import JoinedHops, random_walks, sample_negatives
from graphfeed.ops.structure import unique_and_compact
from graphfeed.storage.graph.graph_protocol import GraphProtocol
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.compaction import compact_hop
from graphfeed.storage.graph.sampling.joined_hops import join_hops
from graphfeed.storage.graph.sampling.rows import Picked, Rows, pick_in_trees
from graphfeed.storage.graph.sampling_request import Draws, Hop, SamplingRequest, draws_of
from graphfeed.storage.graph.type_names import ends_of, type_name


class Together(NamedTuple):
    """How several mini-batches are sampled at once."""

    sample_bytes: float
    """What the samples of a window of them may take."""
    by_thread: bool
    """Whether each thread samples a window, as it mostly waits for others; otherwise all of them share one."""


class SamplingGraph(GraphProtocol):
    """A graph that can be sampled.

    A graph of your own writes `num_nodes`, `num_edges` and `sample_neighbors`, as `GraphProtocol` describes them. Every
    sampler works with it then, except those with LABOR, which need `sample_layer_neighbors`, and those in time, which
    need `pick`. Where each seed has a tree of its own (`disjoint`), there is a call for each tree. A graph may override
    the other methods, to sample all hops in one call, for example.
    """

    heeds: ClassVar[Collection[str]] = ("replace", "probs_name")
    """The options that `sample_neighbors` heeds. One that yours ignores is left out here: samplers that ask for it are
    refused then, rather than get edges that were chosen in another way."""

    @property
    def edge_types(self) -> list[str]:
        """The edge types "source:relation:destination" in the order of fan-outs; empty if the graph has no types."""
        counts = self.num_edges
        return [] if isinstance(counts, int) else list(counts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def validate(self, request: SamplingRequest) -> None:
        """Raise if the graph can't serve a request; called when a stage is built.

        Raises:
            ValueError: A hop with neither one fan-out nor one per edge type, or an option that the graph doesn't heed.
        """
        options = {"replace": request.replace, "probs_name": request.probs_name is not None}
        for name in [name for name, is_wanted in options.items() if is_wanted]:
            if name not in self.heeds:
                raise ValueError(
                    f"sample_neighbors of {type(self).__name__} ignores {name}, which the sampler asks for; let it "
                    f"heed {name} and list it in heeds, or leave {name.replace('probs', 'prob')} out of the sampler"
                )
        num_types = len(self.edge_types) or 1
        for hop, fanout in enumerate(request.fanouts):
            if len(fanout) not in (1, num_types):
                raise ValueError(
                    f"fanouts[{hop}] has {len(fanout)} numbers; give one fan-out for all edge types"
                    + (f", or {num_types}: one per edge type" if num_types > 1 else ": the graph has one edge type")
                )

    def prepare(self, request: SamplingRequest) -> None:
        """Compute what a request needs of the whole graph, before it goes to other processes: each would do it."""

    @checked
    def sample_hops(
        self,
        seeds: ByType,
        request: SamplingRequest,
        keys: Sequence[Any],
        *,
        seeds_timestamp: ByType | None = None,
        seed2_contribution: float = 0.0,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop, each from all rows found so far, and relabel.

        In time, nodes are not deduplicated: the same node at two times counts as two rows. The rows of a hop are its
        columns, then the source of every edge.

        Args:
            seeds: Node ids; by node type if the graph has types.
            request: The fan-outs, and how they are chosen.
            keys: The key of each hop, the seeds' own hop first; two of each by LABOR.
            seeds_timestamp: In time: the time of each seed; by node type as the seeds are.
            seed2_contribution: By LABOR, the share of the nodes that draw by the second key.

        Returns:
            One subgraph per hop, the outermost first; the row ids of each are the column ids of the one before it.
        """
        return self.sample_drawn(seeds, request, draws_of(request, keys, seed2_contribution), seeds_timestamp)

    def sample_joined(
        self, seeds: ByType, request: SamplingRequest, keys: Sequence[Any], *, seeds_timestamp: ByType | None = None
    ) -> JoinedHops:
        """Do `sample_hops`, and return all hops as one, with the edges of each type hop after hop."""
        hops = self.sample_hops(seeds, request, keys, seeds_timestamp=seeds_timestamp)
        return join_hops(hops, disjoint=request.disjoint)

    def sample_drawn(
        self, seeds: ByType, request: SamplingRequest, draws: Sequence[Draws], times: ByType | None
    ) -> list[SampledSubgraph]:
        """Do `sample_hops` with the draws of each hop; a graph that samples all hops by one call overrides this."""
        return self.sample_hop_by_hop([seeds], request, [draws], [times])[0]

    def sample_hops_together(
        self, seeds: Sequence[ByType], request: SamplingRequest, keys: Sequence[Sequence[int]], each: Each = map
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops of several mini-batches; a graph on disk reads for all of them at once, one in parts asks.

        Args:
            seeds, keys: Of each mini-batch, as for `sample_hops`.
            each: Applies a function to each mini-batch, like `map`, perhaps in threads.
        """
        return list(each(lambda own, own_keys: self.sample_hops(own, request, own_keys), seeds, keys))

    def samples_at_once(self, request: SamplingRequest, *, on_cpu: bool = True) -> bool:  # noqa: ARG002
        """Return whether all hops of a mini-batch are sampled by one call, of seeds on the CPU or elsewhere."""
        return False

    def together(self, request: SamplingRequest) -> Together | None:  # noqa: ARG002
        """Return how to sample several mini-batches at once; None where that gains nothing."""
        return None

    def sample_hop_by_hop(
        self,
        seeds: Sequence[ByType],
        request: SamplingRequest,
        draws: Sequence[Sequence[Draws]],
        times: Sequence[ByType | None] | None = None,
        each: Each = map,
    ) -> list[list[SampledSubgraph]]:
        """Sample the hops of mini-batches one after the other, each hop of all of them at once.

        Args:
            seeds, each: As for `sample_hops_together`.
            draws: Of each mini-batch, the draws of each hop, the seeds' own hop first.
            times: In time: of each mini-batch, the time of each seed.

        Returns:
            The hops of each mini-batch, the outermost first.
        """
        given = zip(seeds, draws, times or [None] * len(seeds), strict=True)
        minibatches = [Rows(self.num_nodes, own, request, drawn, moments) for own, drawn, moments in given]
        layers: list[list[SampledSubgraph]] = [[] for _ in minibatches]
        for number in range(len(request.fanouts) if minibatches else 0):
            nodes, hops = zip(*[own.hop(number) for own in minibatches], strict=True)
            picked = self.pick_each(nodes, hops, each)
            for known, hop in zip(layers, each(Rows.take, minibatches, picked), strict=True):
                known.insert(0, hop)
        return layers

    def pick_each(self, nodes: Sequence[ByType], hops: Sequence[Hop], each: Each = map) -> list[Picked]:
        """Do `pick` for the same hop of several mini-batches; a graph that can do so at once overrides this.

        With `disjoint`, `pick` is called for each tree by itself: `hop.trees` is None there.
        """
        return list(each(partial(pick_in_trees, self.pick), nodes, hops))

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Sample in-edges of some nodes: one hop, with the ids of the graph.

        Here, by `sample_neighbors` or, for LABOR, by `sample_layer_neighbors`. For samplers in time, override it.

        Args:
            nodes: Node ids; by node type if the graph has types.

        Returns:
            The hop without row ids; and the time of each of its edges where the next hop looks at these.

        Raises:
            NotImplementedError: The graph can't sample in this way.
        """
        request, (keys, share) = hop.request, hop.draws
        if request.temporal is not None:
            raise NotImplementedError(
                f"{type(self).__name__} has no pick for hops in time; write it, or sample with sample_neighbor instead"
            )
        options = nodes, hop.fanout, request.replace, request.probs_name
        if request.strategy != "labor":
            return self.sample_neighbors(*options, key=int(keys[0])), None
        seeds = [int(key) for key in keys]
        return self.sample_layer_neighbors(*options, random_seed=seeds, seed2_contribution=share / 2**64), None

    def in_subgraph(self, nodes: ByType) -> SampledSubgraph:
        """Return all in-edges of some nodes, with the ids of the graph; raises what `sample_neighbors` raises.

        Args:
            nodes: Node ids; by node type if the graph has types. The columns are in this order.
        """
        return self.sample_neighbors(nodes, torch.tensor([-1], device="cpu"), key=0)

    def random_walks(self, starts: torch.Tensor, length: int, *, key: int | None = None) -> torch.Tensor:
        """Walk at random, against the direction of the edges; a walk that comes to a node without in-edges stays there.

        Each step goes to the source of one of the node's in-edges, all equally likely. Walk `i` depends on the key, on
        its start and on `i` alone. Here, each step takes all in-edges of the nodes that the walks have come to; a graph
        that can do with less overrides this.

        Args:
            starts: Where each walk begins: node ids of a graph without types.
            key: The key of the draws (`Key.at`); by default, the result of `draw_key`.

        Returns:
            Node ids, shape (walks, length + 1); the starts come first.

        Raises:
            ValueError: The graph has types, a start lies outside of it, or the length is negative.
        """
        check_walks(self, length)
        key = draw_key() if key is None else key
        walks = [as_ids("starts", starts)]
        for step in range(length):
            # Walks that meet at a node ask for its edges once.
            nodes, (columns,), _ = unique_and_compact([walks[-1]])
            # The whole columns are read, since any edge may be drawn.
            hop = compact_hop(self.in_subgraph(nodes), deduplicate=True, num_nodes=self.num_nodes)
            csc, rows = hop.sampled_csc, hop.original_row_node_ids
            assert isinstance(csc, CSCFormatBase)
            assert isinstance(rows, torch.Tensor)
            # As a graph of its own, in which the nodes that come behind the columns have no in-edges.
            indptr = torch.cat([csc.indptr, csc.indptr[-1:].expand(len(rows) - len(nodes))])
            walks.append(rows[random_walks(indptr, csc.indices, columns, 1, key, step)[:, 1]])
        return torch.stack([nodes.to(walks[-1].dtype) for nodes in walks], dim=1)

    @checked
    def sample_negative_edges_uniform(
        self,
        edge_type: str | tuple[str, str, str] | None,
        node_pairs: torch.Tensor,
        negative_ratio: int,
        *,
        key: int | None = None,
    ) -> torch.Tensor:
        """Return the pairs, followed by copies of each with a destination drawn uniformly from the nodes of its type.

        A drawn pair may happen to be an edge; this is not checked. Draw `i` depends on the key and on `i` alone.

        Args:
            edge_type: Type of the pairs, "source:relation:destination" or a tuple of the three; None and "" stand for
                ids of all types. The graph need not have the relation, only the node types.
            node_pairs: Pairs of a source and a destination, of an integer dtype, shape (N, 2).
            negative_ratio: The number of copies of each pair, 1 or more.
            key: The key of the draws (`Key.at`); by default, the result of `draw_key`.

        Returns:
            Shape (N * (1 + negative_ratio), 2): all pairs, then `negative_ratio` copies of the first, and so on.

        Raises:
            KeyError: The graph doesn't have the node types that the edge type joins.
            ValueError: Pairs of another shape, an id outside of its node type, or a ratio below 1. Ids on a GPU are
                checked where they are sampled around, as it would have to be waited for here.
        """
        num_nodes, edge_type = self.num_nodes, type_name(edge_type)
        node_pairs = as_ids("node_pairs", node_pairs)
        if not edge_type:
            total = num_nodes if isinstance(num_nodes, int) else sum(num_nodes.values())
            sizes = [total, total]
        else:
            counts = num_nodes if isinstance(num_nodes, dict) else {}
            sizes = [counts[node_type] for node_type in joined_types(str(edge_type), counts)]
        key = draw_key() if key is None else key
        result = sample_negatives(node_pairs, negative_ratio, sizes[1], key)
        for name, column, size in zip(("sources", "destinations"), node_pairs.unbind(1), sizes, strict=True):
            # On a GPU, looking would wait for the device.
            if column.is_cpu:
                check_ids(f"{name} of node_pairs", column, size)
        return result


def check_walks(graph: SamplingGraph, length: int) -> None:
    check_count("length", length, 0)
    if graph.edge_types:
        raise ValueError(
            f"random walks need a graph without types, but it has {graph.edge_types}; make one of the edges to walk on"
        )


def joined_types(edge_type: str, node_types: Collection[str]) -> tuple[str, str]:
    ends = ends_of(edge_type)
    if not set(ends) <= set(node_types):
        known = f"the node types {list(node_types)}" if node_types else "no types"
        raise KeyError(f"edge_type is {brief(edge_type)}, but the graph has {known}")
    return ends
