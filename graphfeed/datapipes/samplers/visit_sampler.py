"""Sample the nodes that random walks visit most (PinSAGE)."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes.samplers.ranked_hop import ranked_hop
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph
from graphfeed.ops import draw_key
from graphfeed.ops.arguments import brief, check_count, is_list
from graphfeed.ops.sampling import MOST_STEPS, MOST_TOP, count_visits
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import (
    MOST_WALKS,
    ByType,
    WalkRequest,
    from_type_dict,
    match_types,
    to_type_dict,
    with_all_types,
)


class VisitSampler(SubgraphSampler, name="sample_by_visits", seeded=False):
    """Samples the nodes that random walks from a node visit most, as in PinSAGE, against the direction of the edges.

    From each node, `walks` walks make up to `length` steps; with `etypes`, up to `length` traversals of this metapath,
    which must lead back to the type of the seeds. All nodes at the ends of steps, or of traversals, are counted; the
    node itself may be among them. `fanouts` has one number per hop, the outermost hop first. In each hop, a node has
    an edge from each of the nodes that its walks visited most, the most frequent first, and then by id; `edge_weights`
    has the numbers of visits, int64. The next hop begins at all nodes found so far. With types, the edge type is
    "item:visited:item". (Ying et al.: PinSAGE, KDD 2018.)

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of nodes that each hop samples for a node, the outermost hop first.
        walks: Number of walks from each node.
        length: Number of steps, or of traversals of the metapath.
        stop: Chance that a walk ends before each step or traversal after the first.
        probs_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        etypes: The edge types of a traversal; needed if the graph has types.

    Raises:
        KeyError: The graph lacks an edge type or the edge attribute `probs_name`.
        ValueError: A number is out of range, or the metapath doesn't lead back to its first type; when it runs: a seed
            outside of the graph.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 1, 2]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1)
        >>> minibatch = next(iter(pipe.sample_by_visits(graph, [2], walks=10, length=3, stop=0.0)))
        >>> minibatch.input_nodes, minibatch.sampled_subgraphs[0].edge_weights
        (tensor([0, 1, 2]), tensor([10, 10]))
    """

    graph: SamplingGraph
    fanouts: Sequence[int]
    walks: int = 200
    length: int = 3
    stop: float = 0.5
    probs_name: str | None = None
    etypes: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        if not is_list(self.fanouts) or not len(self.fanouts):
            raise ValueError(f"fanouts must hold one number per hop, as in [10, 10], but is {brief(self.fanouts)}")
        for fanout in self.fanouts:
            check_count("fanouts", fanout, 1, MOST_TOP)
        if self.etypes is not None and not isinstance(self.etypes, (list, tuple)):
            raise TypeError(f"etypes must be a list of edge types, but is {brief(self.etypes)}")
        check_count("walks", self.walks, 1, MOST_WALKS)
        check_count("length", self.length, 1, MOST_STEPS)
        self.graph.validate_walks(self.request)
        first, last = self.request.node_types[0], self.request.node_types[-1]
        if first != last:
            raise ValueError(f"etypes begin at {first!r} and end at {last!r}; a traversal must lead back to its start")

    @cached_property
    def request(self) -> WalkRequest:
        """The request for walks, the same for each hop."""
        etypes = self.etypes or ()
        steps = len(etypes) or 1
        stops = [0.0 if step == 0 or step % steps else self.stop for step in range(self.length * steps)]
        return WalkRequest(len(stops), self.walks, stop=stops, probs_name=self.probs_name, etypes=etypes)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and one subgraph per hop, outermost hop first. Times are ignored."""
        node_type, steps = self.request.node_types[0], len(self.etypes or ()) or 1
        edge_type = None if node_type is None else f"{node_type}:visited:{node_type}"
        nodes: Any = from_type_dict(match_types("seeds", seeds, self.graph.num_nodes))
        hops = list[SampledSubgraph]()
        for number, fanout in enumerate(reversed(self.fanouts)):
            starts = nodes if node_type is None else with_all_types(nodes, [node_type])
            walked = self.graph.sample_walks(starts, self.request, key=draw_key(number)).nodes
            ends = walked[:, steps::steps]
            # By NumPy: torch would wake its threads, which waits for busy cores.
            ends = torch.from_numpy(np.ascontiguousarray(ends.numpy())) if ends.is_cpu else ends.contiguous()
            ranked = count_visits(ends.view(-1, self.walks * self.length), fanout)
            columns = nodes if node_type is None else with_all_types(nodes, to_type_dict(self.graph.num_nodes))
            hops.insert(0, ranked_hop(self.graph, columns, {edge_type: ranked}, {edge_type: ranked.values}))
            nodes = hops[0].original_row_node_ids
        return nodes, hops

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        self.graph.prepare_walks(self.request)
        return vars(self).copy()
