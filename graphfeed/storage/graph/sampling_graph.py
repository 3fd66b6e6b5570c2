"""What a sampler asks of a graph, and all hops made of one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import torch

from graphfeed.ops import compact, draw_key, sample_negatives
from graphfeed.ops.checks import check_ids
from graphfeed.ops.random import MASK
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.temporal_query import TemporalQuery
from graphfeed.storage.graph.type_names import etype_str_to_tuple


class SamplingGraph(ABC):
    """A graph that can be sampled: a subclass gives one hop, and may give all hops in a quicker way."""

    @property
    @abstractmethod
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes; by node type, in the order of their ids, if the graph has types."""

    @property
    @abstractmethod
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges; by edge type if the graph has types."""

    @abstractmethod
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample in-edges of the seeds: one hop, with the ids of the graph."""

    def sample_hops(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop, each from all nodes found so far, and relabel.

        Args:
            seeds: Node ids; by node type if the graph has types.
            fanouts: One tensor a layer, the outermost layer first.
            keys: The key of each hop, the seeds' own hop first.
            replace: Whether an edge may be chosen more than once.
            probs_name: The edge attribute that holds weights or a mask.

        Returns:
            One subgraph a layer, the outermost first; each layer's row ids are the column ids of the one before it.
        """
        hops = [
            partial(self.sample_neighbors, fanouts=fanout, replace=replace, probs_name=probs_name, key=key)
            for fanout, key in zip(reversed(fanouts), keys, strict=True)
        ]
        return stack(seeds, hops, partial(relabel, num_nodes=self.num_nodes))

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
        """Sample in-edges of the seeds by variates of the neighbours; a graph may lack this.

        Raises:
            NotImplementedError: The graph lacks it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no sample_layer_neighbors; write it, or sample with sample_neighbor instead"
        )

    def labor_sample_hops(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        random_seeds: Sequence[tuple[int, int]],
        seed2_contribution: float = 0.0,
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Do as `sample_hops`, but each hop by `sample_layer_neighbors`.

        Args:
            seeds: Node ids; by node type if the graph has types.
            fanouts: One tensor a layer, the outermost layer first.
            random_seeds: The two seeds of each hop, the seeds' own hop first.
            seed2_contribution: Which part of the nodes draws by the second.
            replace: Whether an edge may be chosen more than once.
            probs_name: The edge attribute that holds weights or a mask.
        """
        sample = partial(
            self.sample_layer_neighbors,
            replace=replace,
            probs_name=probs_name,
            seed2_contribution=seed2_contribution,
        )
        pairs = zip(reversed(fanouts), random_seeds, strict=True)
        hops = [partial(sample, fanouts=fanout, random_seed=pair) for fanout, pair in pairs]
        return stack(seeds, hops, partial(relabel, num_nodes=self.num_nodes))

    def temporal_sample_hops(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        rule: TemporalQuery,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop, each from all rows so far, what was there before the time of a row.

        No two nodes are merged, for a node at two times is two: the rows of a hop are its columns, then the source of
        every edge. A graph may lack this.

        Args:
            seeds: Node ids; by node type if the graph has types.
            seeds_timestamp: The time of each.
            fanouts: One tensor a layer, the outermost layer first.
            keys: The key of each hop, the seeds' own hop first.
            rule: Which neighbours may be sampled, and how.

        Raises:
            NotImplementedError: The graph lacks it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no temporal_sample_hops; write it, or sample with sample_neighbor instead"
        )

    def in_subgraph(self, nodes: ByType) -> SampledSubgraph:
        """Return all in-edges of the nodes, with the ids of the graph; raises what `sample_neighbors` does.

        Args:
            nodes: Node ids; by node type if the graph has types. The columns are in this order.
        """
        return self.sample_neighbors(nodes, torch.tensor([-1]), key=0)

    def sample_negative_edges_uniform(
        self,
        edge_type: str | None,
        node_pairs: torch.Tensor,
        negative_ratio: int,
        *,
        key: int | None = None,
    ) -> torch.Tensor:
        """Return the pairs, followed by copies of each with a destination that is drawn uniformly from its type.

        Nothing checks that a drawn pair is no edge. Draw `i` depends on the key and on `i` alone.

        Args:
            edge_type: Type of the pairs, "src:rel:dst"; None and "" take ids of all nodes together.
            node_pairs: Of an integer dtype, shape (N, 2): sources and destinations.
            negative_ratio: How many copies of each pair.
            key: Key of the draws (`Key.at`); what `draw_key` gives if None.

        Returns:
            Shape (N * (1 + negative_ratio), 2): all pairs, then `negative_ratio` copies of the first, and so on.

        Raises:
            KeyError: An edge type that the graph hasn't got.
            ValueError: Pairs of another shape, an id outside of its node type, or a ratio below 1.
        """
        num_nodes = self.num_nodes
        if not edge_type:
            total = num_nodes if isinstance(num_nodes, int) else sum(num_nodes.values())
            sizes = [total, total]
        else:
            known = getattr(self, "edge_type_to_id", None) or {}
            if edge_type not in known or isinstance(num_nodes, int):
                raise KeyError(f"edge_type is {edge_type!r}, but the graph has {list(known) or 'no types'}")
            sizes = [num_nodes[kind] for kind in etype_str_to_tuple(edge_type)[::2]]
        key = draw_key() if key is None else key
        result = sample_negatives(node_pairs, negative_ratio, sizes[1], key)
        for name, column, size in zip(("sources", "destinations"), node_pairs.unbind(1), sizes, strict=True):
            check_ids(f"{name} of node_pairs", column, size)
        return result


def parse_seeds(
    random_seed: torch.Tensor | Sequence[int] | None, seed2_contribution: float
) -> tuple[tuple[int, int], int]:
    """Return the two keys of layer-neighbour sampling, and the second's share of the nodes in units of 2**-64.

    Raises:
        ValueError: Neither 1 nor 2 seeds, or a contribution outside of 0 to 1.
    """
    drawn = [draw_key()] if random_seed is None else random_seed
    seeds = [int(seed) & MASK for seed in drawn]
    if len(seeds) not in (1, 2):
        raise ValueError(f"random_seed must hold 1 or 2 numbers, but holds {len(seeds)}")
    if not 0 <= seed2_contribution <= 1:
        raise ValueError(f"seed2_contribution must lie in 0 .. 1, but is {seed2_contribution}")
    if seed2_contribution == 1:
        return (seeds[-1], seeds[-1]), 0
    return (seeds[0], seeds[-1]), int(seed2_contribution * 2**64)


def stack(
    seeds: ByType,
    hops: Iterable[Callable[[ByType], SampledSubgraph]],
    compact_one: Callable[[SampledSubgraph], SampledSubgraph],
) -> list[SampledSubgraph]:
    """Sample hop after hop, each from the rows of the one before, and return a subgraph a layer, the outermost first.

    Args:
        seeds: Node ids; by node type if the graph has types.
        hops: What samples each hop, with the ids of the graph.
        compact_one: What gives a hop its row ids.
    """
    layers = []
    for sample in hops:
        layers.append(compact_one(sample(seeds)))
        rows = layers[-1].original_row_node_ids
        assert rows is not None
        seeds = rows
    return layers[::-1]


def relabel(hop: SampledSubgraph, num_nodes: int | Mapping[str, int]) -> SampledSubgraph:
    """Give one hop row ids: seeds first and verbatim, then the new nodes in order of first appearance.

    Args:
        hop: Columns and edges with the ids of the graph.
        num_nodes: As the graph gives it: all node types, in order.
    """
    seeds = hop.original_column_node_ids
    if isinstance(num_nodes, int):
        assert isinstance(seeds, torch.Tensor)
        assert isinstance(hop.sampled_csc, CSCFormatBase)
        result = compact(seeds, hop.sampled_csc.indices, num_nodes=num_nodes)
        csc = CSCFormatBase(hop.sampled_csc.indptr, result.local)
        return SampledSubgraph(csc, seeds, result.rows, hop.original_edge_ids)
    assert isinstance(seeds, dict)
    assert isinstance(hop.sampled_csc, dict)
    return relabel_by_type(hop.sampled_csc, seeds, hop.original_edge_ids, num_nodes)


def running_sum(counts: Sequence[int]) -> list[int]:
    """Return 0 and the sums of the first 1, 2, ... counts."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums


def relabel_by_type(
    cscs: dict[str, CSCFormatBase],
    seeds: dict[str, torch.Tensor],
    edge_ids: ByType | None,
    num_nodes: Mapping[str, int],
) -> SampledSubgraph:
    """Relabel a hop of a graph with types; the row ids hold every node type of the graph."""
    kinds = list(num_nodes)
    offsets = running_sum(list(num_nodes.values()))
    first = dict(zip(kinds, offsets, strict=False))
    sources = [edge_type.split(":")[0] for edge_type in cscs]
    ids = [seeds[kind] + first[kind] for kind in kinds]
    neighbors = [csc.indices + first[source] for source, csc in zip(sources, cscs.values(), strict=True)]
    neighbor_starts = running_sum([len(part) for part in neighbors])
    result = compact(
        torch.cat(ids),
        torch.cat(neighbors) if neighbors else torch.cat(ids)[:0],
        seed_starts=torch.tensor(running_sum([len(part) for part in ids])),
        neighbor_starts=torch.tensor(neighbor_starts),
        sources=torch.tensor([kinds.index(source) for source in sources], dtype=torch.int64),
        num_nodes=offsets[-1],
    )
    row_starts = result.row_starts.tolist()
    rows = {
        kind: result.rows[row_starts[place] : row_starts[place + 1]] - first[kind] for place, kind in enumerate(kinds)
    }
    local = {
        edge_type: CSCFormatBase(csc.indptr, result.local[neighbor_starts[place] : neighbor_starts[place + 1]])
        for place, (edge_type, csc) in enumerate(cscs.items())
    }
    return SampledSubgraph(local, seeds, rows, edge_ids)
