"""Sample random walks from the seeds."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.samplers.subgraph_sampler import check_is_graph, with_nodes
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw_key, drawing
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import WalkRequest


class WalkSampler(Transform, name="sample_walks", draws=True, reads_graph=True, seeded=False):
    """Samples random walks against the direction of the edges; `graph.reversed()` makes them follow the edges.

    A step goes from a node to the source of one of its in-edges, which samplers of neighbours would also draw. The
    walks are in `minibatch.walks`, int64, shape (seeds, walks, length + 1), with -1 after the end of a walk. The seeds
    are nodes; of edges, they are the distinct endpoints, as for samplers. A walk depends only on its start, its number
    among those of the seed, and the key of the mini-batch: equal seeds have equal walks.

    With `p` or `q`, these are the walks of node2vec (Grover and Leskovec, KDD 2016): the chance of an edge is divided
    by `p` if its source is the node before, and by `q` if its source has no in-edge, of any type, from the node before.
    This keeps a sorted copy of the sources (8 bytes per edge), unless they are sorted. If 1,024 edges are rejected, the
    next is taken anyway, which matters only where the chances differ by factors of hundreds.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        length: Number of steps.
        per_seed: Number of walks from each seed.
        p: Return parameter of node2vec: the chance to go back to the node before is divided by it.
        q: In-out parameter of node2vec: the chance to go to a node without an edge to the node before is divided by it.
        stop: Chance that a walk ends before a step; or a number for each step.
        probs_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        etypes: The edge type of each step, a metapath, repeated until there are enough; needed if the graph has types.
            The first step goes from the destination of the first type to its source.
        edge_ids: Whether `minibatch.walk_edge_ids` is set to the ids of the edges, shape (seeds, walks, length).

    Raises:
        KeyError: The graph lacks an edge type or the edge attribute `probs_name`.
        ValueError: A number is out of range; the graph has types, and `etypes` are missing or don't join; when it runs:
            a seed outside of the graph, or of another type than the one where `etypes` begin.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 1, 2]), num_nodes=4)  # 3 -> 2 -> 1 -> 0
        >>> pipe = ItemSampler(ItemSet([0, 2], names="seeds"), batch_size=2)
        >>> next(iter(pipe.sample_walks(graph, length=2))).walks
        tensor([[[ 0,  1,  2]],
        <BLANKLINE>
                [[ 2,  3, -1]]])
        >>> next(iter(pipe.sample_walks(graph.reversed(), length=2))).walks[1]
        tensor([[2, 1, 0]])
    """

    graph: SamplingGraph
    length: int
    per_seed: int = 1
    p: float = 1.0
    q: float = 1.0
    stop: float | Sequence[float] = 0.0
    probs_name: str | None = None
    etypes: Sequence[Any] | None = None
    edge_ids: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        self.graph.validate_walks(self.request)

    @cached_property
    def request(self) -> WalkRequest:
        """The request of the stage, the same for each mini-batch."""
        etypes = () if self.etypes is None else self.etypes
        return WalkRequest(self.length, self.per_seed, self.p, self.q, self.stop, self.probs_name, etypes)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result, seeds = with_nodes(minibatch)
        with drawing(minibatch.key, self.number):
            walks = self.graph.sample_walks(seeds.ids, self.request, key=draw_key(0), edge_ids=self.edge_ids)
        result.walks = walks.nodes.view(-1, self.per_seed, self.length + 1)
        if walks.edges is not None:
            result.walk_edge_ids = walks.edges.view(len(result.walks), self.per_seed, self.length)
        return result

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        self.graph.prepare_walks(self.request)
        return vars(self).copy()
