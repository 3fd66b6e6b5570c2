"""Sample neighbours of the seeds, layer by layer."""

from dataclasses import replace

from graphfeed.datapipes.fanout_sampler import FanoutSampler, refuse_cooperation
from graphfeed.ops import draw_key
from graphfeed.storage import SampledSubgraph
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_request import SamplingRequest


class NeighborSampler(FanoutSampler, name="sample_neighbor"):
    """Samples in-neighbours, each layer from all nodes found so far (GraphSAGE: Hamilton and others, NeurIPS 2017).

    Sets `sampled_subgraphs` and `input_nodes`, for edge seeds also `compacted_seeds`. Without replacement each set of
    neighbours of a node is equally likely, or follows the weights; a node that occurs twice in a mini-batch is sampled
    alike. The draws depend on the mini-batch's key, the hop and the node's id alone; a mini-batch that comes from no
    pipeline has no key, and gets a random one (`seed`).

    The last five options are those of samplers on GPUs. What would change the result is refused; `asynchronous` has no
    effect.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`; when it runs: seeds of an unknown node type.
        ValueError: No fan-outs, a layer with a wrong number of them, a cache of fewer than 0 edges, a threshold below
            1, or `cooperative`; when it runs: a seed outside of the graph.

    Example:
        >>> import torch
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet(torch.tensor([0]), names="seeds"), batch_size=1)
        >>> next(iter(pipe.sample_neighbor(graph, fanouts=[-1, -1]))).input_nodes
        tensor([0, 1, 2, 3])
    """

    deduplicate: bool = True
    """Whether a node is one row, however many edges lead to it; else each edge has a row of its own."""
    overlap_fetch: bool = False
    """Whether, behind a copy to a GPU, the loader samples ahead of what follows, on a stream of its own."""
    num_gpu_cached_edges: int = 0
    """Of so many edges a GPU keeps copies, once it samples from a pinned graph: of all in-edges of a node. What is
    sampled stays the same. No effect where the graph lies on the GPU, or seeds on the CPU."""
    gpu_cache_threshold: int = 1
    """When it has sampled a node's in-edges so often, they are copied."""
    cooperative: bool = False
    """Only False: each rank samples for its own seeds."""
    asynchronous: bool = False
    """Has no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_cooperation(cooperative=self.cooperative)

    def make_request(self) -> SamplingRequest:
        """Return the request that the stage makes to its graph."""
        return replace(
            super().make_request(),
            deduplicate=self.deduplicate,
            num_gpu_cached_edges=self.num_gpu_cached_edges,
            gpu_cache_threshold=self.gpu_cache_threshold,
        )

    def sample_hops(self, seeds: ByType) -> list[SampledSubgraph]:
        """Return one subgraph per hop around the seeds, the outermost first."""
        return self.graph.sample_hops(seeds, self.request, [draw_key(hop) for hop in range(len(self.fanouts))])
