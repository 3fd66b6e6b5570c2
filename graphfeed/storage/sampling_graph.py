"""What a sampler asks of a graph, and all hops made of one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch

from graphfeed.ops import compact
from graphfeed.storage.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph


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

    def sample_layers(
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
        layers = []
        for fanout, key in zip(reversed(fanouts), keys, strict=True):
            hop = self.sample_neighbors(seeds, fanout, replace, probs_name, key=key)
            layers.append(relabel(hop, self.num_nodes))
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
