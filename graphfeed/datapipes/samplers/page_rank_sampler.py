"""Sample the nodes with the highest personalized PageRank of each seed."""

from typing import Any

import numpy as np
import torch

from graphfeed.datapipes.samplers.ranked_hop import ranked_hop
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph
from graphfeed.ops.sampling import MASS
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, check_page_rank, from_type_dict, match_types, to_type_dict, with_all_types


class PageRankSampler(SubgraphSampler, name="sample_by_ppr", draws=False, seeded=False):
    """Samples the nodes with the highest personalized PageRank of each seed, against the direction of the edges.

    The only subgraph has an edge to each seed from each of its `top` nodes, the best first, and then by id; the seed
    itself is usually among them. `edge_weights` has their scores, float32. Nothing is random: the scores come from a
    forward push in integers (Andersen, Chung and Lang, FOCS 2006), and are the same for any graph and workers. A score
    is below the true one by at most the residuals, each of which is below `bound` times the degree of its node.
    `induce_subgraph(graph)` replaces these edges by those of the graph between the nodes.

    With types, mass goes along the in-edges of all types alike. The edges from items to users have the type
    "item:ppr:user".

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        top: Number of nodes for each seed; fewer if the seed reaches fewer.
        alpha: Share of a node's mass that stays there, 0.001 or more; the rest goes to its in-neighbours.
        bound: Nodes whose residual is below this share of the mass, times their degree, are not pushed: the smaller,
            the more exact and the slower.
        per_type: Whether `top` is the number of nodes of each type; by default, of all types together.

    Raises:
        ValueError: A number is out of range; when it runs: a seed outside of the graph.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 2]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1).sample_by_ppr(graph, top=3, alpha=0.5)
        >>> minibatch = next(iter(pipe))
        >>> minibatch.input_nodes, minibatch.sampled_subgraphs[0].edge_weights
        (tensor([0, 1, 2]), tensor([0.5000, 0.2500, 0.1250]))
    """

    graph: SamplingGraph
    top: int
    alpha: float = 0.15
    bound: float = 1e-4

    per_type: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        check_page_rank(self.top, self.alpha, self.bound)

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and the only subgraph. Times are ignored."""
        nodes: Any = from_type_dict(match_types("seeds", seeds, self.graph.num_nodes))
        ranked = to_type_dict(self.graph.page_rank(nodes, self.top, self.alpha, self.bound, per_type=self.per_type))
        # By NumPy: torch would wake its threads, which waits for busy cores.
        scores = {name: (own.values.numpy() / MASS).astype(np.float32) for name, own in ranked.items()}
        columns = nodes if None in ranked else with_all_types(nodes, to_type_dict(self.graph.num_nodes))
        hop = ranked_hop(self.graph, columns, ranked, {name: torch.from_numpy(own) for name, own in scores.items()})
        return hop.original_row_node_ids, [hop]

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        self.graph.prepare_push()
        return vars(self).copy()
