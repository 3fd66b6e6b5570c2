"""The base class of samplers with one fan-out per hop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, estimate_hops
from graphfeed.datapipes.samplers.subgraph_sampler import SubgraphSampler, check_is_graph, with_input_nodes, with_nodes
from graphfeed.datapipes.sources.distributed_item_sampler import find_rank
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw_keys, drawing
from graphfeed.ops.arguments import as_tensor, brief, holds_whole, is_list
from graphfeed.storage import FusedCSCSamplingGraph, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ByType, Draws, SamplingRequest, Seeds, by_type_name, draws_of

Fanout: TypeAlias = int | Sequence[int] | torch.Tensor | Mapping[str, int] | Mapping[tuple[str, str, str], int]
"""Fan-out of one hop: a number, one per edge type in the order of `graph.edge_types`, or a dict by edge type."""
Fanouts: TypeAlias = Sequence[Fanout] | Mapping[str, Sequence[int]] | Mapping[tuple[str, str, str], Sequence[int]]
"""Fan-outs of all hops: one per hop, or a dict by edge type with one number per hop."""
FOR_GPUS = ("asynchronous", "gpu_cache_threshold", "num_gpu_cached_edges")
"""Arguments of GraphBolt's samplers that are ignored here."""


def by_hop(fanouts: Mapping[Any, Any]) -> Iterator[dict[Any, Any]]:
    """Yield one dict by edge type for each hop, from a dict by edge type with the numbers of all hops."""
    for edge_type, numbers in fanouts.items():
        if not is_list(numbers):
            raise TypeError(
                f"fanouts[{brief(edge_type)}] must hold one number per hop, as in [10, 10], but is {brief(numbers)}"
            )
    lengths = {edge_type: len(numbers) for edge_type, numbers in fanouts.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"fanouts must have equally many numbers for each edge type, but has {brief(lengths)}")
    for numbers in zip(*fanouts.values(), strict=True):
        yield dict(zip(fanouts, numbers, strict=True))


def parse_fanout(name: str, given: Any, graph: SamplingGraph | None) -> torch.Tensor:
    numbers = in_order(name, given, graph) if isinstance(given, Mapping) else given
    try:
        fanout = as_tensor(name, numbers).reshape(-1)
    except TypeError as error:
        raise no_fanout(name, given) from error
    if not holds_whole(fanout):
        raise no_fanout(name, given)
    if fanout.numel() and int(fanout.min()) < -1:
        raise ValueError(f"{name} must be -1 (all neighbours) or more, but is {brief(given)}")
    return fanout.to(torch.int64)


def no_fanout(name: str, given: object) -> TypeError:
    return TypeError(f"{name} must be an integer, or one per edge type, but is {brief(given)}")


def in_order(name: str, given: Mapping[Any, Any], graph: SamplingGraph | None) -> list[Any]:
    named, known = by_type_name(given), [] if graph is None else graph.edge_types
    if set(named) != set(known):
        raise ValueError(
            f"{name} must have a number for each edge type of the graph, which has {known or 'no types'}, but has "
            f"{list(named)}; 0 samples no neighbours"
        )
    return [named[edge_type] for edge_type in known]


class FanoutSampler(SubgraphSampler, seeded=False):
    """Base class of samplers with fan-outs, which limit the in-edges of each node: samples what `make_request` returns.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of neighbours to sample per node and hop, the outermost hop first; -1 samples all. A hop has one
            number for all edge types together, or a list, a tensor (in the order of `graph.edge_types`) or a dict with
            one per edge type. Instead of a list of hops, a dict by edge type may have lists with one number per hop.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.

    Raises:
        KeyError: The graph has no edge attribute `prob_name`.
        ValueError: There are no fan-outs, or a hop has neither one fan-out nor one per edge type.
    """

    graph: SamplingGraph
    fanouts: Fanouts
    replace: bool = False
    prob_name: str | None = None

    _apart_from_inputs: ClassVar[tuple[str, ...]] = ("request",)
    asks: ClassVar[str] = "sample_hops"
    """Name of the graph's method that samples a mini-batch."""
    asks_for_window: ClassVar[str] = "sample"
    """Name of the graph's method that samples several mini-batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        self.graph.validate(self.make_request())

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph. Subclasses may extend it."""
        hops: Any = list(by_hop(self.fanouts)) if isinstance(self.fanouts, Mapping) else self.fanouts
        if not is_list(hops) or len(hops) == 0:
            raise ValueError(f"fanouts must hold one number per hop, as in [10, 10], but is {brief(self.fanouts)}")
        fanouts = [parse_fanout(f"fanouts[{hop}]", given, self.graph) for hop, given in enumerate(hops)]
        return SamplingRequest(fanouts, self.replace, self.prob_name)

    @cached_property
    def request(self) -> SamplingRequest:
        """The sampling request of the stage, the same for each mini-batch."""
        return self.make_request()

    def seeds_to_sample(self, seeds: Seeds) -> ByType | Seeds:
        """Return the seeds to pass to `sample_hops`: their ids, without times."""
        return seeds.ids

    def hop_keys(self) -> tuple[Sequence[Any], float]:
        """Return the key, or two for LABOR, of each hop, the seeds' own hop first; and the share of the second ones."""
        return draw_keys(len(self.request.fanouts)), 0.0

    def sample_hops(self, seeds: ByType | Seeds) -> list[SampledSubgraph]:
        """Return one subgraph per hop around the seeds, outermost hop first. Subclasses may override it."""
        sample, (keys, share) = getattr(self.graph, self.asks), self.hop_keys()
        options = {"seed2_contribution": share} if share else {}
        return sample(seeds, self.request, keys, **options)  # type: ignore[no-any-return]

    def sample_subgraphs(
        self,
        seeds: ByType,
        seeds_timestamp: ByType | None = None,
        seeds_pre_time_window: ByType | None = None,
    ) -> tuple[ByType, list[SampledSubgraph]]:
        """Return the input nodes and one subgraph per hop, outermost hop first."""
        if getattr(self, "cooperative", False):
            check_alone(self)
        given = Seeds(seeds, seeds_timestamp, seeds_pre_time_window)
        return with_input_nodes(self.sample_hops(self.seeds_to_sample(given)))

    def sample_window(self, minibatches: Sequence[MiniBatch]) -> list[list[SampledSubgraph] | None]:
        """Sample the hops of several mini-batches in one call to the graph.

        The loader calls it, and `attach_hops` for each mini-batch, if the graph gains from windows. A subclass that
        overrides `sample_hops`, `sample_subgraphs` or `__call__` has no windows, unless it also overrides this method.

        Args:
            minibatches: Mini-batches with seeds and keys.

        Returns:
            For each mini-batch its subgraphs, outermost hop first. None if sampling failed: `attach_hops` then samples
            the mini-batch alone, so that the error is raised in its place.
        """
        asked: dict[int, tuple[Seeds, list[Draws]]] = {}
        for number, minibatch in enumerate(minibatches):
            with suppress(Exception), drawing(minibatch.key, self.number):
                seeds = self.seeds_to_sample(with_nodes(minibatch)[1])
                asked[number] = Seeds.of(seeds), draws_of(self.request, *self.hop_keys())
        found: dict[int, list[SampledSubgraph]] = {}
        with suppress(Exception):
            given, draws = zip(*asked.values(), strict=True)
            found = dict(zip(asked, getattr(self.graph, self.asks_for_window)(given, self.request, draws), strict=True))
        return [found.get(number) for number in range(len(minibatches))]

    def attach_hops(self, minibatch: MiniBatch, pending: list[SampledSubgraph] | None) -> MiniBatch:
        """Return a mini-batch with its hops from `sample_window`. If `pending` is None, sample it alone."""
        if pending is None:
            return self(minibatch)
        result, *_ = with_nodes(minibatch)
        result.input_nodes, result.sampled_subgraphs = with_input_nodes(pending)
        return result

    def can_start(self) -> bool:
        """Return whether `start` samples on a GPU as a call does: not if a subclass has its own methods."""
        names = "__call__", "sample_subgraphs", "sample_hops"
        is_own = any(getattr(type(self), name) is not getattr(FanoutSampler, name) for name in names)
        graph = self.graph
        if is_own or self.asks != "sample_hops" or getattr(self, "cooperative", False):
            return False
        return isinstance(graph, FusedCSCSamplingGraph) and graph.can_start(self.request)

    def start(self, minibatch: MiniBatch) -> Callable[[MiniBatch], MiniBatch]:
        """Start sampling on a GPU; return a function that waits and returns the mini-batch with its hops.

        The loader calls it for a mini-batch before it needs the previous ones. If sampling fails, the function raises.
        """
        assert isinstance(self.graph, FusedCSCSamplingGraph)
        result, seeds = with_nodes(minibatch)
        with drawing(minibatch.key, self.number):
            given = Seeds.of(self.seeds_to_sample(seeds))
            hops = self.graph.start(given, self.request, draws_of(self.request, *self.hop_keys()))

        def finish(_: MiniBatch) -> MiniBatch:
            result.input_nodes, result.sampled_subgraphs = with_input_nodes(hops())
            return result

        return finish

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return an estimate from average in-degrees and the fan-outs."""
        return estimate_hops(before, self.graph, self.request)

    def __getstate__(self) -> dict[str, Any]:
        # Prepare the graph before it is shared, so that workers share the result.
        self.graph.prepare(self.request)
        return vars(self).copy()


def check_alone(stage: Transform) -> None:
    """Raise if there are several ranks: without a DataLoader, a cooperative stage runs on one rank only."""
    if (find_rank() or (0, 1))[1] > 1:
        raise RuntimeError(
            f"{type(stage).__name__} has cooperative=True, but ranks cooperate only in a DataLoader; iterate the "
            "pipeline through one"
        )
