"""Sample neighbours of the seeds, hop by hop."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.samplers.fanout_sampler import FOR_GPUS, FanoutSampler
from graphfeed.ops.arguments import rename_overrides
from graphfeed.storage import SampledSubgraph
from graphfeed.storage.graph import SamplingRequest


class NeighborSampler(FanoutSampler, name="sample_neighbor", ignored=FOR_GPUS, seeded=False):
    """Samples in-neighbours. Each hop samples from all nodes found so far (GraphSAGE: Hamilton et al., NeurIPS 2017).

    With `fanouts=[10, 2]`, a seed gets 2 neighbours, and each node of the next hop 10. PyG's loaders, and those of
    `graphfeed.pyg`, list the seeds' own hop first.

    Sets `sampled_subgraphs` and `input_nodes`, and for edge seeds also `compacted_seeds`. Without replacement, every
    set of neighbours of a node is equally likely, or follows the weights. A node that occurs twice in a mini-batch gets
    the same neighbours both times, unless the seeds are `disjoint`. The draws depend only on the mini-batch's key, the
    hop and the node's id; a mini-batch that doesn't come from a pipeline has no key, and gets a random one (`seed`).

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of neighbours to sample per node and hop, the outermost hop first; -1 samples all. A hop has one
            number for all edge types together, or a list, a tensor (in the order of `graph.edge_types`) or a dict with
            one per edge type. Instead of a list of hops, a dict by edge type may have lists with one number per hop.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        deduplicate: Whether a node gets one row, however many edges lead to it; otherwise, each edge has a separate
            row.
        overlap_fetch: Whether the loader, after a copy to a GPU, samples ahead of the stages that follow, on a separate
            stream.
        cooperative: Whether the ranks sample joint mini-batches: the columns of each hop are the nodes of the joint hop
            that this rank owns, so each node is sampled once for all ranks. Together, the ranks have the mini-batch
            that one process would sample for all their seeds. Needs a `DistributedItemSampler`, the DataLoader, and
            `CooperativeConv` in the model. With a `PartitionedGraph`, a node's owner is the rank of its partition. A
            single rank ignores it.
        only_new: Whether each hop samples only the nodes that the previous hop added, so that each node is sampled
            once, as in PyG's `NeighborLoader`; otherwise, all nodes found so far. The columns of a hop are the same
            nodes either way.
        disjoint: Whether each seed has a separate tree: a node that two seeds lead to has two rows. Trees are drawn
            independently, even for equal seeds, because the draws also depend on the seed's position. Implies
            `only_new`.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`; when it runs: seeds of an unknown node type.
        ValueError: No fan-outs, a hop with neither one fan-out nor one per edge type, or `cooperative` with `only_new`
            or `disjoint`; when it runs: a seed outside of the graph.
        RuntimeError: When it runs: `cooperative` on several ranks without a DataLoader.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_neighbor(graph, fanouts=[-1, -1]))).input_nodes
        tensor([0, 1, 2, 3])
    """

    deduplicate: bool = True
    overlap_fetch: bool = False
    _: KW_ONLY
    cooperative: bool = False
    only_new: bool = False
    disjoint: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Rename methods that override `begin` or `finish`, which go in 0.3."""
        super().__init_subclass__(**kwargs)
        rename_overrides(cls, {"begin": "sample_window", "finish": "attach_hops"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cooperative and (self.only_new or self.disjoint):
            given = "disjoint" if self.disjoint else "only_new"
            raise ValueError(f"cooperative and {given} are both True; ranks share all nodes, so leave one out")

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph."""
        return replace(
            super().make_request(),
            deduplicate=self.deduplicate,
            only_new=self.only_new or self.disjoint,
            disjoint=self.disjoint,
        )

    def begin(self, minibatches: Sequence[MiniBatch], each: object = map) -> list[list[SampledSubgraph] | None]:  # noqa: ARG002
        """Deprecated name of `sample_window`, which goes in 0.3; `each` does nothing."""
        warnings.warn("call sample_window instead of begin", DeprecationWarning, stacklevel=2)
        return FanoutSampler.sample_window(self, minibatches)

    def finish(self, minibatch: MiniBatch, pending: list[SampledSubgraph] | None) -> MiniBatch:
        """Deprecated name of `attach_hops`, which goes in 0.3."""
        warnings.warn("call attach_hops instead of finish", DeprecationWarning, stacklevel=2)
        return FanoutSampler.attach_hops(self, minibatch, pending)
