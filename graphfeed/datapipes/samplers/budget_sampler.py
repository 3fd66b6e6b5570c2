"""Sample so many nodes of each type in each hop, with all edges among them."""

from collections.abc import Mapping, Sequence

from graphfeed.datapipes.samplers.subgraph_inducer import induce
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler
from graphfeed.ops import draw_key
from graphfeed.ops.arguments import brief
from graphfeed.ops.checks import check_count
from graphfeed.storage import FusedCSCSamplingGraph, SampledSubgraph
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling.typed_sampling import sample_by_budget


class BudgetSampler(SubgraphSampler, name="sample_by_budget"):
    """Samples nodes of each type by how well they are joined to those before, and takes all edges among them.

    This is the sampling of the heterogeneous graph transformer (HGSampling; Hu and others, WWW 2020). Each node that
    was sampled shares one point for each edge type among its neighbours. A hop draws nodes of each type without
    replacement, in proportion to the squares of their points. So a mini-batch has as many nodes of a rare type as of a
    frequent one, and many edges among them. The one subgraph has the seeds as its first nodes.

    Raises:
        TypeError: `graph` is not a graph in memory, or a number is no whole one.
        ValueError: The graph has no types, a node type has no numbers, or a number is negative; when it runs: a seed
            outside of the graph.

    Example:
        >>> from graphfeed import HeteroItemSet, ItemSampler, ItemSet, from_coo
        >>> graph = from_coo({"author:writes:paper": ([0, 1, 2], [0, 0, 1])}, {"author": 3, "paper": 2})
        >>> pipe = ItemSampler(HeteroItemSet({"paper": ItemSet([0], names="seeds")}), batch_size=1)
        >>> minibatch = next(iter(pipe.sample_by_budget(graph, {"author": [2], "paper": [0]})))
        >>> minibatch.edge_ids(0)
        {'author:writes:paper': tensor([0, 1])}
    """

    graph: FusedCSCSamplingGraph
    num_samples: Sequence[int] | Mapping[str, Sequence[int]]
    """How many nodes each hop samples, the seeds' own hop first: of each type, or by node type."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.graph, FusedCSCSamplingGraph):
            raise TypeError(
                f"graph must be a FusedCSCSamplingGraph, but is a {type(self.graph).__name__}; make one with from_coo"
            )
        if not isinstance(self.graph.num_nodes, dict):
            raise ValueError("graph has no types, so there is no number for each; use sample_neighbor instead")
        self.__dict__["num_samples"] = read_numbers(self.num_samples, list(self.graph.num_nodes))

    @property
    def hops(self) -> list[dict[str, int]]:
        """The number of nodes by node type, for each hop."""
        assert isinstance(self.num_samples, Mapping)
        depth = max(map(len, self.num_samples.values()), default=0)
        padded = {kind: [*own, *[0] * (depth - len(own))] for kind, own in self.num_samples.items()}
        return [{kind: own[hop] for kind, own in padded.items()} for hop in range(depth)]

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the nodes and the one subgraph; times are ignored."""
        hops = self.hops
        nodes = sample_by_budget(self.graph, seeds, hops, [draw_key(hop) for hop in range(len(hops))])
        subgraph = induce(self.graph, nodes)
        assert subgraph.original_row_node_ids is not None
        return subgraph.original_row_node_ids, [subgraph]


def read_numbers(given: Sequence[int] | Mapping[str, Sequence[int]], kinds: Sequence[str]) -> dict[str, list[int]]:
    """Return how many nodes each hop samples, by node type."""
    by_type = given if isinstance(given, Mapping) else dict.fromkeys(kinds, given)
    wrong = [kind for kind in [*kinds, *by_type] if kind not in by_type or kind not in kinds]
    if wrong:
        raise ValueError(f"num_samples must have the node types {list(kinds)}, but has {brief(list(by_type))}")
    for kind, numbers in by_type.items():
        for number in numbers:
            check_count(f"num_samples of {kind!r}", number, 0)
    if not any(map(len, by_type.values())):
        raise ValueError("num_samples is empty; give a number for each hop")
    return {kind: [int(number) for number in by_type[kind]] for kind in kinds}
