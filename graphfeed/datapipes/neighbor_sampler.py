"""Sample neighbours of the seeds, layer by layer."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.subgraph_sampler import SubgraphSampler
from graphfeed.ops import Key
from graphfeed.ops.random import minibatch_key
from graphfeed.storage import FusedCSCSamplingGraph, SampledSubgraph, SamplingGraph, compact_csc_format
from graphfeed.storage.sampled_subgraph import ByType

Fanouts: TypeAlias = Sequence[int | Sequence[int] | torch.Tensor]


def parse_fanouts(fanouts: Fanouts, graph: SamplingGraph) -> list[torch.Tensor]:
    """Return the fan-outs of each layer as a tensor, or say what is wrong with them."""
    if isinstance(fanouts, (str, int)) or len(fanouts) == 0:
        raise ValueError(f"fanouts must hold a number for each layer, as in [10, 10], but is {fanouts!r}")
    num_types = len(getattr(graph, "edge_type_to_id", None) or ()) or 1
    layers = []
    for place, given in enumerate(fanouts):
        fanout = torch.as_tensor(given).reshape(-1)
        if fanout.is_floating_point() or fanout.dtype == torch.bool:
            raise TypeError(f"fanouts[{place}] must be whole numbers, but is {given!r}")
        if len(fanout) not in (1, num_types):
            one_a_type = (
                f"or {num_types}, one an edge type of the graph" if num_types > 1 else "for the graph has one type"
            )
            raise ValueError(
                f"fanouts[{place}] has {len(fanout)} numbers; give 1 for all edges of a node together, {one_a_type}"
            )
        if int(fanout.min()) < -1:
            raise ValueError(f"fanouts[{place}] must be -1 (all neighbours) or more, but is {given!r}")
        layers.append(fanout.to(torch.int64))
    return layers


class NeighborSampler(SubgraphSampler, name="sample_neighbor"):
    """Samples in-neighbours, each layer from all nodes found so far (GraphSAGE: Hamilton and others, NeurIPS 2017).

    Sets `sampled_subgraphs` and `input_nodes`, for edge seeds also `compacted_seeds`. Without replacement each set of
    neighbours of a node is equally likely, or follows the weights; a node that occurs twice in a mini-batch is sampled
    alike. The draws depend on the mini-batch's key, the hop and the node's id alone; a mini-batch that comes from no
    pipeline has no key, and gets one from torch's default generator.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`; when it runs: seeds of an unknown node type.
        ValueError: No fan-outs, or a layer with a wrong number of them; when it runs: a seed outside of the graph.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet(torch.tensor([0]), names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_neighbor(graph, fanouts=[-1, -1]))).input_nodes
        tensor([0, 1, 2, 3])
    """

    graph: SamplingGraph
    fanouts: Fanouts
    """One a layer, the outermost layer first: a number, or one an edge type; -1 takes all neighbours."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    prob_name: str | None = None
    """The edge attribute that holds weights or a mask."""
    deduplicate: bool = True
    """Whether a node is one row, however many edges lead to it; else each edge has a row of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.graph, SamplingGraph):
            raise TypeError(
                f"graph must be a SamplingGraph, but is a {type(self.graph).__name__}; make one with from_coo"
            )
        parse_fanouts(self.fanouts, self.graph)
        if self.prob_name is not None and isinstance(self.graph, FusedCSCSamplingGraph):
            self.graph.edge_attribute(self.prob_name)

    @cached_property
    def layer_fanouts(self) -> list[torch.Tensor]:
        """The fan-outs of each layer as a tensor."""
        return parse_fanouts(self.fanouts, self.graph)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and a subgraph a layer, the outermost first; times are not looked at."""
        layers = self.sample_layers(seeds, minibatch_key())
        rows = layers[0].original_row_node_ids
        assert rows is not None
        return rows, layers

    def sample_layers(self, nodes: ByType, key: Key) -> list[SampledSubgraph]:
        """Return all layers around the nodes, the outermost first."""
        hops = [key.at(self.number, hop) for hop in range(len(self.fanouts))]
        if self.deduplicate:
            return self.graph.sample_layers(nodes, self.layer_fanouts, hops, self.replace, self.prob_name)
        layers: list[SampledSubgraph] = []
        for fanout, hop_key in zip(reversed(self.layer_fanouts), hops, strict=True):
            hop = self.graph.sample_neighbors(nodes, fanout, self.replace, self.prob_name, key=hop_key)
            columns: Any = hop.original_column_node_ids
            sampled: Any = hop.sampled_csc
            nodes, csc = compact_csc_format(sampled, columns)
            layers.append(SampledSubgraph(csc, columns, nodes, hop.original_edge_ids))
        return layers[::-1]

    def __getstate__(self) -> dict[str, Any]:
        """Make the weights' running sums before the graph is shared, so that workers share them too."""
        if self.prob_name is not None and isinstance(self.graph, FusedCSCSamplingGraph):
            self.graph.prepare_weights(self.prob_name)
        return vars(self).copy()
