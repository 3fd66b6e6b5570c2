"""The base class of all samplers of subgraphs, including user-defined ones."""

import copy
from functools import cache
from inspect import signature
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.sources.seeds import PER_ITEM, given_seeds, node_seeds, timed_node_seeds
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import drawing, minibatch_key
from graphfeed.ops.arguments import brief, kind_of
from graphfeed.ops.sampling import JoinedHops
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, Seeds, TensorOrDict, from_type_dict


class SubgraphSampler(Transform, name="sample_subgraph", draws=True, reads_graph=True, seeded=False):
    """Base class of samplers. Subclasses implement `sample_subgraphs`; options are fields, or set by an `__init__`.

    The seeds passed to `sample_subgraphs` are nodes. For edge seeds, they are the distinct endpoints or, if the
    mini-batch has timestamps, all endpoints with their times. The result becomes `sampled_subgraphs` and `input_nodes`;
    for edge seeds, `compacted_seeds` is set as well.

    Graph methods called there use the mini-batch's key by themselves. To make other draws depend only on the
    mini-batch, call `draw_key` in the thread that calls the method; or declare a parameter `key`, which receives the
    mini-batch's key: `key.at(self.number)` is the random seed of the draws. A mini-batch that doesn't come from a
    pipeline has no key, and gets a random one (`seed`).

    Raises:
        ValueError: When it runs: a mini-batch without seeds.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo, unique_and_compact_csc_formats
        >>> class OneHop(SubgraphSampler):
        ...     graph: object
        ...     def sample_subgraphs(self, seeds, seeds_timestamp):
        ...         hop = self.graph.in_subgraph(seeds)
        ...         rows, csc, _ = unique_and_compact_csc_formats(hop.sampled_csc, seeds)
        ...         return rows, [SampledSubgraph(csc, seeds, rows, hop.original_edge_ids)]
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> next(iter(OneHop(ItemSampler(ItemSet([0], names="seeds"), batch_size=1), graph))).input_nodes
        tensor([0, 1, 2])
    """

    def sample_subgraphs(
        self,
        seeds: TensorOrDict,
        seeds_timestamp: TensorOrDict | None = None,
        seeds_pre_time_window: TensorOrDict | None = None,
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes, and one subgraph per hop, outermost hop first.

        Args:
            seeds: Node ids, by node type if the seeds have types.
            seeds_timestamp: The time of each seed, if the mini-batch has timestamps.
            seeds_pre_time_window: The length of each seed's time window; passed only if the mini-batch has windows.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement sample_subgraphs")

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result, seeds = with_nodes(minibatch)
        with drawing(minibatch.key, self.number):
            more: Any = {"key": minibatch_key()} if takes_key(type(self)) else {}
            # Samplers of users may not take windows.
            times = seeds[1:] if seeds.windows is not None else (seeds.times,)
            sampled: object = self.sample_subgraphs(seeds.ids, *times, **more)
        if not isinstance(sampled, tuple) or len(sampled) != 2:
            raise TypeError(
                f"sample_subgraphs of {type(self).__name__} must return the input nodes and a list of subgraphs, but "
                f"returned {brief(sampled)}"
            )
        result.input_nodes, result.sampled_subgraphs = sampled
        return result


@cache
def takes_key(cls: type[SubgraphSampler]) -> bool:
    return "key" in signature(cls.sample_subgraphs).parameters


def with_nodes(minibatch: MiniBatch) -> tuple[MiniBatch, Seeds]:
    """Return a copy with `compacted_seeds`, and the nodes to sample around, with their times and windows if present."""
    seeds, result = given_seeds(minibatch), copy.copy(minibatch)
    if minibatch.timestamp is None:
        nodes, result.compacted_seeds = node_seeds(seeds)
        return result, Seeds(nodes)
    given = [(getattr(minibatch, name), minibatch.indexes, name) for name in PER_ITEM]
    timed = [timed_node_seeds(seeds, *values) for values in given if values[0] is not None]
    nodes, result.compacted_seeds, _ = timed[0]
    return result, Seeds(nodes, *(own for _, _, own in timed))


def with_input_nodes(hops: Any) -> tuple[ByType, Any]:
    if isinstance(hops, JoinedHops):
        return from_type_dict(hops.rows), hops
    # The outermost hop comes first. Its rows are the nodes of all hops, whose features are needed.
    return hops[0].original_row_node_ids, hops


def check_is_graph(graph: object) -> None:
    """Raise a TypeError unless a value is a graph to sample from."""
    if not isinstance(graph, SamplingGraph):
        raise TypeError(f"graph must be a SamplingGraph, but is {kind_of(graph)}; make one with from_coo")
