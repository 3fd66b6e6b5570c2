"""Sample a fixed number of nodes of each type in each hop, with all edges among them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, zip_longest
from typing import Any

import torch

from graphfeed.datapipes.samplers.subgraph_inducer import induce
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph
from graphfeed.ops import draw_key
from graphfeed.ops.arguments import brief, check_count
from graphfeed.ops.sampling import NodeBudget
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, ends_of, first_ids

MOST_NEIGHBORS = 50
"""Maximum number of in-edges of one type that count for a node; of more, this many are drawn at random."""


class BudgetSampler(SubgraphSampler, name="sample_by_budget", seeded=False):
    """Samples nodes of each type by their connections to the nodes sampled so far (HGT), with all edges among them.

    This is the sampling of the heterogeneous graph transformer (HGSampling; Hu et al., WWW 2020). For each edge type, a
    sampled node divides one point equally among its neighbours. A hop draws nodes of each type without replacement, in
    proportion to the squares of their points. So a mini-batch has as many nodes of a rare type as of a frequent one,
    and many edges among them. If a node has more than 50 in-edges of a type, 50 of them are picked at random. The only
    subgraph has the seeds as its first nodes; no node is drawn twice.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        num_samples: Number of nodes that each hop samples, the seeds' own hop first: for all node types, or by node
            type.

    Raises:
        ValueError: The graph has no types, or `num_samples` lacks one; when it runs: a seed outside of the graph.

    Example:
        >>> from graphfeed import HeteroItemSet, ItemSampler, ItemSet, from_coo
        >>> graph = from_coo({"author:writes:paper": ([0, 1, 2], [0, 0, 1])}, {"author": 3, "paper": 2})
        >>> pipe = ItemSampler(HeteroItemSet({"paper": ItemSet([0], names="seeds")}), batch_size=1)
        >>> next(iter(pipe.sample_by_budget(graph, {"author": [2], "paper": [0]}))).edge_ids(0)
        {'author:writes:paper': tensor([0, 1])}
    """

    graph: SamplingGraph
    num_samples: Sequence[int] | Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        if not isinstance(self.graph.num_nodes, dict):
            raise ValueError("graph has no types, but num_samples is by node type; use sample_neighbor instead")
        self.__dict__["num_samples"] = parse_num_samples(self.num_samples, list(self.graph.num_nodes))

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,  # noqa: ARG002
        seeds_pre_time_window: ByType | None = None,  # noqa: ARG002
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the nodes and the only subgraph. Times are ignored."""
        assert isinstance(self.num_samples, Mapping)
        sizes: Any = self.graph.num_nodes
        firsts = first_ids(sizes)
        fanouts = torch.full((len(self.graph.edge_types),), MOST_NEIGHBORS, device="cpu")
        budget = NodeBudget(torch.tensor([*firsts.values(), sum(sizes.values())], device="cpu"))
        newest: Any = seeds
        nodes: dict[str, list[torch.Tensor]] = {node_type: [] for node_type in sizes}
        for number, wanted in enumerate(zip_longest(*self.num_samples.values(), fillvalue=0)):
            key = draw_key(number)
            # The columns of this hop are the nodes that the previous one drew.
            hop: Any = self.graph.sample_neighbors(newest, fanouts, key=key)
            for node_type, parts in nodes.items():
                parts.append(hop.original_column_node_ids[node_type])
            budget.share(*edge_runs(hop, self.graph.edge_types, firsts))
            drawn = budget.draw(list(wanted), key)
            newest = {node_type: ids - first for (node_type, first), ids in zip(firsts.items(), drawn, strict=True)}
        # The nodes that the last hop drew were not columns of any hop.
        subgraph = induce(self.graph, {name: torch.cat([*parts, newest[name]]) for name, parts in nodes.items()})
        assert subgraph.original_row_node_ids is not None
        return subgraph.original_row_node_ids, [subgraph]


def edge_runs(
    hop: Any, edge_types: Sequence[str], firsts: Mapping[str, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a hop's column nodes, the start of the edges of each column and type, and the sources of all edges."""
    # In ids common to all types, where each type starts at its entry of `firsts`.
    columns = {name: hop.original_column_node_ids[name].long() + first for name, first in firsts.items()}
    before = dict(zip(columns, accumulate(map(len, columns.values()), initial=0), strict=False))
    nodes = torch.cat(list(columns.values()))
    ends = [ends_of(edge_type)[1] for edge_type in edge_types]
    ranges = [slice(before[end], before[end] + len(columns[end])) for end in ends]
    counts = torch.zeros(len(nodes), len(edge_types), dtype=torch.int64, device="cpu")
    for number, (edge_type, of_type) in enumerate(zip(edge_types, ranges, strict=True)):
        counts[of_type, number] = hop.sampled_csc[edge_type].indptr.diff().long()
    # Edges are sorted by column, and within a column by type.
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), counts.flatten().cumsum(0)])
    starts = offsets[:-1].reshape(counts.shape)
    sources = torch.empty(int(offsets[-1]), dtype=torch.int64, device="cpu")
    for number, (edge_type, of_type) in enumerate(zip(edge_types, ranges, strict=True)):
        csc = hop.sampled_csc[edge_type]
        # Offset of an edge from its position within its type to its position among the edges of all types.
        moved = (starts[of_type, number] - csc.indptr[:-1])[expand_indptr(csc.indptr, torch.int64)]
        sources[moved + torch.arange(len(moved), device="cpu")] = csc.indices.long() + firsts[ends_of(edge_type)[0]]
    return nodes, offsets, sources


def parse_num_samples(
    given: Sequence[int] | Mapping[str, Sequence[int]], node_types: Sequence[str]
) -> dict[str, list[int]]:
    """Return the number of nodes that each hop samples, by node type."""
    by_type = given if isinstance(given, Mapping) else dict.fromkeys(node_types, given)
    if set(by_type) != set(node_types):
        raise ValueError(f"num_samples must have the node types {list(node_types)}, but has {brief(list(by_type))}")
    numbers: Any
    for node_type, numbers in by_type.items():
        if not isinstance(numbers, Iterable) or isinstance(numbers, str):
            raise TypeError(f"num_samples of {node_type!r} must be numbers, one per hop, but is {brief(numbers)}")
        for number in numbers:
            check_count(f"num_samples of {node_type!r}", number, 0)
    if not any(map(len, by_type.values())):
        raise ValueError("num_samples is empty; give a number for each hop")
    return {node_type: list(map(int, by_type[node_type])) for node_type in node_types}
