"""All that samplers ask of a graph, made of the one hop that it offers."""

from collections.abc import Callable, Collection, Sequence
from numbers import Real
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch

from graphfeed.ops import MASK, draw_key
from graphfeed.ops.arguments import as_ids, brief, check_count, check_ids, check_seed, checked
from graphfeed.ops.rows import Each
from graphfeed.ops.sampling import random_walks, sample_negatives
from graphfeed.ops.structure import unique_and_compact
from graphfeed.storage.graph.graph_protocol import GraphProtocol
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.compaction import compact_hop
from graphfeed.storage.graph.sampling.new_nodes import sample_new_hop_by_hop
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.type_names import ends_of, type_name

Draw = TypeVar("Draw")


class Together(NamedTuple):
    """How several mini-batches are sampled at once."""

    sample_bytes: float
    """What the samples of a window of them may take."""
    by_thread: bool
    """Whether each thread samples a window, as it mostly waits for others; otherwise all of them share one."""


class SamplingGraph(GraphProtocol):
    """A graph that can be sampled.

    A graph of your own writes `num_nodes`, `num_edges` and `sample_neighbors`, as `GraphProtocol` describes them. Every
    sampler works with it then, except those with LABOR and those in time, which need `sample_layer_neighbors` and
    `temporal_sample_hops`. It may override the other methods, to sample all hops in one call, for example.
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
            ValueError: A hop that has neither one fan-out nor one per edge type, or an option that the graph doesn't
                heed.
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
        """Compute what a request needs of the whole graph; called before the graph is sent to other processes.

        Without this call, the first mini-batch of each process computes it.
        """

    def sample_hops(self, seeds: ByType, request: SamplingRequest, keys: Sequence[int]) -> list[SampledSubgraph]:
        """Sample hop after hop, each from all nodes found so far, and relabel.

        Args:
            seeds: Node ids; by node type if the graph has types.
            request: The fan-outs, and how they are chosen.
            keys: The key of each hop, the seeds' own hop first.

        Returns:
            One subgraph per hop, the outermost first; the row ids of each are the column ids of the one before it.
        """

        def sample(nodes: ByType, fanout: torch.Tensor, key: int) -> SampledSubgraph:
            return self.sample_neighbors(nodes, fanout, request.replace, request.probs_name, key=key)

        return sample_hop_by_hop(self, seeds, request, keys, sample)

    def sample_hops_together(
        self, seeds: Sequence[ByType], request: SamplingRequest, keys: Sequence[Sequence[int]], each: Each = map
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops of several mini-batches; a graph on disk reads for all of them at once, one in parts asks.

        Args:
            seeds: Of each mini-batch, as for `sample_hops`.
            request: The fan-outs, and how they are chosen.
            keys: Of each mini-batch, the key of each hop, the seeds' own hop first.
            each: Applies a function to each mini-batch, like `map`, perhaps in threads.
        """
        return list(each(lambda own, own_keys: self.sample_hops(own, request, own_keys), seeds, keys))

    def together(self, request: SamplingRequest) -> Together | None:  # noqa: ARG002
        """Return how to sample several mini-batches at once; None where that gains nothing."""
        return None

    def labor_sample_hops(
        self,
        seeds: ByType,
        request: SamplingRequest,
        random_seeds: Sequence[tuple[int, int]],
        seed2_contribution: float = 0.0,
    ) -> list[SampledSubgraph]:
        """Sample as `sample_hops` does, but each hop with `sample_layer_neighbors`.

        Args:
            seeds: Node ids; by node type if the graph has types.
            request: The fan-outs, and how they are chosen.
            random_seeds: The two seeds of each hop, the seeds' own hop first.
            seed2_contribution: The share of the nodes that draw by the second seed.
        """

        def sample(nodes: ByType, fanout: torch.Tensor, pair: tuple[int, int]) -> SampledSubgraph:
            return self.sample_layer_neighbors(
                nodes, fanout, request.replace, request.probs_name,
                random_seed=pair, seed2_contribution=seed2_contribution,
            )  # fmt: skip

        return sample_hop_by_hop(self, seeds, request, random_seeds, sample)

    def in_subgraph(self, nodes: ByType) -> SampledSubgraph:
        """Return all in-edges of some nodes, with the ids of the graph; raises what `sample_neighbors` raises.

        Args:
            nodes: Node ids; by node type if the graph has types. The columns are in this order.
        """
        return self.sample_neighbors(nodes, torch.tensor([-1]), key=0)

    def random_walks(self, starts: torch.Tensor, length: int, *, key: int | None = None) -> torch.Tensor:
        """Walk at random, against the direction of the edges; a walk that comes to a node without in-edges stays there.

        Each step goes to the source of one of the node's in-edges, all equally likely. Walk `i` depends on the key, on
        its start and on `i` alone. Here, each step takes all in-edges of the nodes that the walks have come to; a graph
        that can do with less overrides this.

        Args:
            starts: Where each walk begins: node ids of a graph without types.
            length: How many steps each takes.
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
                ids of all types. The graph need not have the relation: its node types are all that is read.
            node_pairs: Pairs of a source and a destination, of an integer dtype, shape (N, 2).
            negative_ratio: The number of copies of each pair.
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


def parse_seeds(
    random_seed: torch.Tensor | Sequence[int] | None, seed2_contribution: float
) -> tuple[tuple[int, int], int]:
    """Return the two keys of a LABOR hop, and the share of the nodes that draw by the second, in units of 2**-64.

    Raises:
        TypeError: Seeds that are not whole numbers.
        ValueError: Neither 1 nor 2 seeds, or a contribution outside of 0 to 1.
    """
    drawn: Any = [draw_key()] if random_seed is None else random_seed
    if not hasattr(drawn, "__iter__"):
        raise TypeError(f"random_seed must hold 1 or 2 numbers, but is {brief(drawn)}; put it in a list")
    seeds = [check_seed("random_seed", seed) & MASK for seed in drawn]
    if len(seeds) not in (1, 2):
        raise ValueError(f"random_seed must hold 1 or 2 numbers, but holds {len(seeds)}")
    if not isinstance(seed2_contribution, Real) or not 0 <= seed2_contribution <= 1:
        raise ValueError(f"seed2_contribution must lie in 0 .. 1, but is {brief(seed2_contribution)}")
    # All nodes draw by the second key; 2**64 would not fit into 64 bits.
    if seed2_contribution == 1:
        return (seeds[-1], seeds[-1]), 0
    return (seeds[0], seeds[-1]), int(seed2_contribution * 2**64)


def sample_hop_by_hop(
    graph: SamplingGraph,
    seeds: ByType,
    request: SamplingRequest,
    draws: Sequence[Draw],
    sample: Callable[[ByType, torch.Tensor, Draw], SampledSubgraph],
) -> list[SampledSubgraph]:
    """Sample hop after hop, each from the rows of the one before, and relabel; return the outermost first."""
    # With `only_new`, each hop samples only the rows that the one before added. Draws begin with the seeds' own hop.
    if request.only_new:
        return sample_new_hop_by_hop(
            graph.num_nodes, seeds, request, draws, lambda nodes, _, fanout, draw: sample(nodes, fanout, draw)
        )
    hops: list[SampledSubgraph] = []
    for fanout, draw in zip(reversed(request.fanouts), draws, strict=True):
        hop = sample(seeds, fanout, draw)
        hops.append(compact_hop(hop, deduplicate=request.deduplicate, num_nodes=graph.num_nodes))
        rows = hops[-1].original_row_node_ids
        assert rows is not None
        seeds = rows
    return hops[::-1]
