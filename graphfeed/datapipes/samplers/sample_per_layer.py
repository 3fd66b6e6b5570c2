"""Sample one more hop around the previous one."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.samplers.fanout_sampler import Fanout, parse_fanout
from graphfeed.datapipes.sources.seeds import given_seeds, node_seeds
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import drawing
from graphfeed.ops.arguments import kind_of
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import SamplingRequest, fanout_tensor


class SamplePerLayer(
    Transform, name="sample_per_layer", ignored=("asynchronous",), draws=True, reads_graph=True, seeded=False
):
    """Samples one hop around the rows of the previous hop, or around the seeds, for samplers of several stages.

    The first such stage is the seeds' own hop, whereas `fanouts` of `NeighborSampler` has that hop last. The new
    subgraph comes first in `sampled_subgraphs`. It has the ids of the graph and no row ids, which `compact_per_layer`
    adds; stages between the two may modify it. Each stage of this kind draws independently.

    Args:
        datapipe: Source of the mini-batches.
        sampler: A method of a graph, such as `graph.sample_neighbors`, of seeds, a fan-out tensor, `replace` and
            `prob_name`.
        fanout: A number, or one per edge type, or a dict of numbers by edge type; -1 samples all neighbours.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        overlap_fetch: Whether the loader, after a copy to a GPU, samples ahead of the stages that follow, on a separate
            stream. Stages in a chain that set it share the stream.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`.
        ValueError: Neither one fan-out nor one per edge type; when it runs: the previous hop has no row ids.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet([0], names="seeds"), batch_size=1)
        >>> for sampler in (graph.sample_neighbors, graph.sample_layer_neighbors):
        ...     pipe = pipe.sample_per_layer(sampler, -1).compact_per_layer(deduplicate=True)
        >>> next(iter(pipe)).input_nodes
        tensor([0, 1, 2, 3])
    """

    sampler: Callable[..., SampledSubgraph]
    fanout: Fanout
    replace: bool = False
    prob_name: str | None = None
    overlap_fetch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.sampler):
            raise TypeError(
                f"sampler must be a method of a graph, such as graph.sample_neighbors, but is {kind_of(self.sampler)}"
            )
        if self.graph is not None:
            self.graph.validate(self.request)

    @property
    def graph(self) -> SamplingGraph | None:
        """The graph that `sampler` is a method of; None if it is another kind of function."""
        owner = getattr(self.sampler, "__self__", None)
        return owner if isinstance(owner, SamplingGraph) else None

    @cached_property
    def request(self) -> SamplingRequest:
        """The sampling request of the stage, the same for each mini-batch."""
        return SamplingRequest([parse_fanout("fanout", self.fanout, self.graph)], self.replace, self.prob_name)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result = copy.copy(minibatch)
        layers = minibatch.sampled_subgraphs or []
        # The first of these stages samples around the seeds, each later one around the rows of the previous hop.
        if layers:
            nodes = layers[0].original_row_node_ids
        else:
            nodes, result.compacted_seeds = node_seeds(given_seeds(minibatch))
        if nodes is None:
            raise ValueError("the previous hop has no original_row_node_ids; put compact_per_layer in between")
        with drawing(minibatch.key, self.number):
            hop = self.sampler(nodes, fanout_tensor(self.request.fanouts[0]), self.replace, self.prob_name)
        result.sampled_subgraphs = [hop, *layers]
        return result

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        if self.graph is not None:
            self.graph.prepare(self.request)
        return vars(self).copy()
