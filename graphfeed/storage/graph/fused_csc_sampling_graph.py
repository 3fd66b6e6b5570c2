"""The graph in memory: compressed sparse columns, all types in one id space."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, overload

import torch

from graphfeed import ops
from graphfeed.ops import CompletedFuture, on_gpu
from graphfeed.ops.arguments import check_flags, checked, ignores
from graphfeed.ops.memory import is_page_locked
from graphfeed.ops.process import current_limits
from graphfeed.ops.sampling import JoinedHops, Ranked, Walks
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import SampledSubgraph
from graphfeed.storage.graph.sampling.all_hops import sample_all_hops, sample_one_hop, sample_window
from graphfeed.storage.graph.sampling.page_rank import rank_by_hops, rank_in_memory, short_degrees
from graphfeed.storage.graph.sampling.prepared import record_of
from graphfeed.storage.graph.sampling.rows import Picked
from graphfeed.storage.graph.sampling.temporal_sampling import mask_of
from graphfeed.storage.graph.sampling.walks import sorted_sources, walk_by_hops, walk_in_memory
from graphfeed.storage.graph.sampling_graph import SamplingGraph, Way
from graphfeed.storage.graph.sampling_request import (
    Draws,
    Hop,
    SamplingRequest,
    Seeds,
    Strategy,
    TemporalQuery,
    draws_of,
    fanout_tensor,
    parse_seeds,
)
from graphfeed.storage.graph.type_names import etype_str_to_tuple, etype_tuple_to_str
from graphfeed.storage.graph.walk_request import WalkRequest


class FusedCSCSamplingGraph(GraphArrays, SamplingGraph):
    """A graph in compressed sparse columns (CSC): a column is a destination, `indices` are the sources of its edges.

    Create it with a function such as `from_coo` or `fused_csc_sampling_graph`. With types, node ids are numbered type
    by type in the order of `node_type_to_id`, and the edges of a column ascend by edge type. The graph pickles as a
    shared-memory handle, so workers map the memory of their parent.
    """

    _own: ClassVar[Collection[str]] = ()

    @property
    def edge_types(self) -> list[str]:
        """Edge types "source:relation:destination" in the order of their numbers; empty without types."""
        numbers = self.edge_type_to_id or {}
        return sorted(numbers, key=numbers.__getitem__)

    def validate(self, request: SamplingRequest) -> None:
        """Raise if the graph can't serve a request (see `SamplingGraph`).

        Raises:
            KeyError: The graph lacks an attribute that the request names.
            ValueError: `probs_name` has weights instead of a mask for the latest edges.
        """
        super().validate(request)
        query = request.temporal or TemporalQuery()
        if query.node_timestamp_attr_name is not None:
            self.node_attribute(query.node_timestamp_attr_name)
        for name in (request.probs_name, query.edge_timestamp_attr_name):
            if name is not None:
                self.edge_attribute(name)
        mask_of(self, request)

    def prepare(self, request: SamplingRequest) -> None:
        """Precompute the order of times, sums of weights, index of large columns or wider dtypes for a request."""
        windowed = request.temporal is not None and request.temporal.pre_time_window is not None
        record_of(self, request, windowed=windowed, indexed=self.indices.is_cpu)

    # fmt: off
    @overload
    def sample_neighbors(
        self, seeds: ByType, fanouts: torch.Tensor, replace: bool = False, probs_name: str | None = None,
        *, async_op: Literal[False] = False, key: int | None = None,
    ) -> SampledSubgraph: ...

    @overload
    def sample_neighbors(
        self, seeds: ByType, fanouts: torch.Tensor, replace: bool = False, probs_name: str | None = None,
        *, async_op: Literal[True], key: int | None = None,
    ) -> CompletedFuture[SampledSubgraph]: ...
    # fmt: on

    @ignores("returning_indices_and_original_edge_ids_are_optional")
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        async_op: bool = False,
        key: int | None = None,
    ) -> SampledSubgraph | CompletedFuture[SampledSubgraph]:
        """Sample one hop of in-edges, with the ids of the graph.

        Args:
            seeds: Node ids of the dtype of `indices`; by node type if the graph has types. Missing types have no seeds.
            fanouts: One number for all edge types, shape (1,), or one per edge type; -1 takes all.
            replace: Whether an edge may be sampled more than once.
            probs_name: Edge attribute with weights or a mask; edges with 0 are never sampled.
            async_op: Whether to return a future with the result, which is computed before this method returns.
            key: The key of the hop (`Key.at`); by default, the result of `draw_key`.

        Returns:
            A subgraph with every edge type of the graph, each with one column per seed of its destination type.

        Raises:
            KeyError: The graph lacks a node type or an attribute.
            TypeError: The seeds have a wrong dtype, or are not by type although the graph has types.
            ValueError: A seed is not a node, or the fan-out is invalid.
        """
        check_flags(async_op=async_op)
        drawn = ops.draw_key() if key is None else key
        request = SamplingRequest((fanouts,), replace, probs_name)
        # Two keys, as for LABOR; other strategies use only the first.
        result, _ = sample_one_hop(self, seeds, Hop(request, ((drawn, drawn), 0)))
        return CompletedFuture(result) if async_op else result

    # fmt: off
    @overload
    def sample_layer_neighbors(
        self, seeds: ByType, fanouts: torch.Tensor, replace: bool = False, probs_name: str | None = None,
        *, random_seed: torch.Tensor | Sequence[int] | None = None, seed2_contribution: float = 0.0,
        async_op: Literal[False] = False,
    ) -> SampledSubgraph: ...

    @overload
    def sample_layer_neighbors(
        self, seeds: ByType, fanouts: torch.Tensor, replace: bool = False, probs_name: str | None = None,
        *, random_seed: torch.Tensor | Sequence[int] | None = None, seed2_contribution: float = 0.0,
        async_op: Literal[True],
    ) -> CompletedFuture[SampledSubgraph]: ...
    # fmt: on

    @ignores("returning_indices_and_original_edge_ids_are_optional")
    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
        async_op: bool = False,
    ) -> SampledSubgraph | CompletedFuture[SampledSubgraph]:
        """Sample like `sample_neighbors`, but by variates of the neighbours (LABOR), so that columns share neighbours.

        Args:
            seeds, fanouts, replace, probs_name, async_op: As for `sample_neighbors`.
            random_seed: One or two integers, of which the low 64 bits count; calls with equal integers share the
                variates. By default, the result of `draw_key`.
            seed2_contribution: From 0 to 1: the share of the nodes that draw with the second random seed. As it grows,
                each node switches to the second seed once.
        """
        check_flags(async_op=async_op)
        request = SamplingRequest((fanouts,), replace, probs_name, "labor")
        result, _ = sample_one_hop(self, seeds, Hop(request, parse_seeds(random_seed, seed2_contribution)))
        return CompletedFuture(result) if async_op else result

    def temporal_sample_neighbors(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        seeds_pre_time_window: ByType | None = None,
        probs_name: str | None = None,
        node_timestamp_attr_name: str | None = None,
        edge_timestamp_attr_name: str | None = None,
        *,
        strategy: Strategy = "uniform",
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample one hop of in-edges that existed before the times of the seeds, with the ids of the graph.

        An edge is eligible if its time and that of its source node are strictly between `time - window` and `time`.
        Both limits are excluded, as in GraphBolt (its documentation says otherwise). Times without an attribute name
        are ignored; without both, all edges are eligible. To sample a node at several times, repeat it as a seed.

        Args:
            seeds, fanouts, replace, probs_name, key: As for `sample_neighbors`.
            seeds_timestamp: The time of each seed, of any integer dtype; by node type as the seeds are.
            seeds_pre_time_window: Length of each seed's time window, 0 or more. None: no limit.
            node_timestamp_attr_name: Node attribute with integer times. The minimum of int64, which `from_coo` gives
                to types without times, stands for nodes that always exist and are in every window.
            edge_timestamp_attr_name: Edge attribute with integer times, as for nodes.
            strategy: "uniform" draws at random; "latest" takes the edges with the latest times, and among equal times
                those that come last in the graph. The time of an edge with two times is the later one.

        Returns:
            A subgraph in the form of `sample_neighbors`.

        Raises:
            ValueError: The numbers of times, windows and seeds differ, a window is negative, or "latest" is combined
                with replacement or with weights that are not a mask; also the errors of `sample_neighbors`.
        """
        query = TemporalQuery(node_timestamp_attr_name, edge_timestamp_attr_name)
        request = SamplingRequest((fanouts,), replace, probs_name, strategy, temporal=query)
        drawn = ops.draw_key() if key is None else key
        hop = Hop(request, ((drawn, drawn), 0), times=seeds_timestamp, windows=seeds_pre_time_window)
        return sample_one_hop(self, seeds, hop)[0]

    def temporal_sample_layer_neighbors(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        seeds_pre_time_window: ByType | None = None,
        probs_name: str | None = None,
        node_timestamp_attr_name: str | None = None,
        edge_timestamp_attr_name: str | None = None,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample like `temporal_sample_neighbors`, but by variates of the neighbours (LABOR), the same at all times.

        Args:
            random_seed, seed2_contribution: As for `sample_layer_neighbors`; other arguments are as for
                `temporal_sample_neighbors`.
        """
        query = TemporalQuery(node_timestamp_attr_name, edge_timestamp_attr_name)
        request = SamplingRequest((fanouts,), replace, probs_name, "labor", temporal=query)
        draws = parse_seeds(random_seed, seed2_contribution)
        return sample_one_hop(self, seeds, Hop(request, draws, times=seeds_timestamp, windows=seeds_pre_time_window))[0]

    def sample(
        self, seeds: Sequence[Seeds], request: SamplingRequest, draws: Sequence[Sequence[Draws]]
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops, on the CPU in one call, which releases the GIL (see `SamplingGraph`)."""
        if not self.way(request, on_cpu=all(own.on_cpu for own in seeds)).at_once:
            return super().sample(seeds, request, draws)
        return sample_window(self, seeds, request, draws)

    def can_start(self, request: SamplingRequest) -> bool:
        """Return whether a GPU reads the graph, and samples a request without waiting, except for its sizes."""
        bounded = request.temporal is None and all(int(own.min()) >= 0 for own in map(fanout_tensor, request.fanouts))
        there = on_gpu(self.indices) or is_page_locked(self.indices)
        return there and bounded and not self._own and self.way(request, on_cpu=False).at_once

    def start(self, seeds: Seeds, request: SamplingRequest, draws: Sequence[Draws]) -> Callable[[], Any]:
        """Start sampling on a GPU; return a function that waits and returns the subgraphs, on the same stream."""
        return sample_all_hops(self, seeds, request, draws, ahead=True)  # type: ignore[no-any-return]

    def sample_joined(self, seeds: ByType | Seeds, request: SamplingRequest, keys: Sequence[Any]) -> JoinedHops:
        """Sample and join all hops, on the CPU in a single call (see `SamplingGraph`)."""
        given = Seeds.of(seeds)
        is_own = "sample_hops" in self._own or not self.way(request).at_once
        if is_own or not (self.indices.is_cpu and given.on_cpu):
            return super().sample_joined(seeds, request, keys)
        return sample_all_hops(self, given, request, draws_of(request, keys), joined=True)  # type: ignore[no-any-return]

    def sample_each_joined(
        self, seeds: Sequence[Seeds], request: SamplingRequest, draws: Sequence[Sequence[Draws]]
    ) -> list[JoinedHops]:
        """Sample and join all hops of several mini-batches, on the CPU in a single call (see `SamplingGraph`)."""
        if all(own.on_cpu for own in seeds) and self.way(request).window_bytes is not None:
            return sample_window(self, seeds, request, draws, joined=True)
        return super().sample_each_joined(seeds, request, draws)

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Sample one hop, with a method that a subclass has overridden if there is one (see `SamplingGraph`)."""
        return super().pick(nodes, hop) if self.own_method(hop.request) else sample_one_hop(self, nodes, hop)

    def pick_each(self, nodes: Sequence[ByType], hops: Sequence[Hop]) -> list[Picked]:
        """Call `pick` for several mini-batches; unless a subclass overrides it, once for all trees of each."""
        return super().pick_each(nodes, hops) if self.own_method(hops[0].request) else list(map(self.pick, nodes, hops))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Record which methods the subclass overrides."""
        super().__init_subclass__(**kwargs)
        names = "sample_neighbors", "sample_layer_neighbors", "pick", "sample_hops", "sample_joined"
        cls._own = {name for name in names if getattr(cls, name) is not getattr(FusedCSCSamplingGraph, name)}

    def own_method(self, request: SamplingRequest) -> str | None:
        """Return the name of the subclass's own method that samples one hop of a request; None if there is none."""
        name = "sample_layer_neighbors" if request.strategy == "labor" else "sample_neighbors"
        return name if name in self._own and request.temporal is None else None

    def way(self, request: SamplingRequest, *, on_cpu: bool = True) -> Way:
        """Return how the graph serves a request: on the CPU, all hops in one call, unless a subclass overrides hops."""
        own = "pick" if "pick" in self._own else self.own_method(request)
        if own is not None:
            return Way(False, f"{type(self).__name__} has its own {own}")
        if on_cpu and self.indices.is_cpu:
            windows = {"sample_hops", "sample_joined"}.isdisjoint(self._own)
            return Way(True, "the graph is in this process", current_limits().window_bytes if windows else None)
        timed, typed = request.temporal is not None, self.node_type_to_id is not None
        for is_given, what in (
            (request.disjoint, "disjoint trees"),
            (request.only_new, "only_new"),
            (typed and timed, "edge types in time"),
            (not (request.deduplicate or timed), "deduplicate=False"),
        ):
            if is_given:
                return Way(False, f"there are no GPU kernels for all hops with {what}")
        return Way(True, "the graph is read by a GPU")

    def prepare_walks(self, request: WalkRequest) -> None:
        """Precompute sums of weights and the sorted sources of columns for walks."""
        super().prepare_walks(request)
        if request.is_second_order:
            sorted_sources(self)

    def reversed(self) -> "FusedCSCSamplingGraph":
        """Return a copy in which each edge goes the other way, so that walks and samplers follow the edges.

        Nodes and edges keep their ids and attributes. An edge type "user:likes:item" becomes "item:likes:user".

        Example:
            >>> graph = fused_csc_sampling_graph(torch.tensor([0, 2, 2]), torch.tensor([1, 0])).reversed()
            >>> graph.csc_indptr, graph.indices, graph.in_subgraph(torch.tensor([1])).original_edge_ids
            (tensor([0, 1, 2]), tensor([0, 0]), tensor([0]))
        """
        self.ensure_checked()
        ends = ops.expand_indptr(self.csc_indptr, self.indices.dtype), self.indices
        names: dict[str, int] | None = None if self.edge_type_to_id is None else {}
        order = None
        if names is not None:
            for name, number in self.edge_type_to_id.items():
                source, relation, destination = etype_str_to_tuple(name)
                names[etype_tuple_to_str((destination, relation, source))] = number
            # The sort by column is stable, so that the types ascend in each column.
            order = torch.argsort(self.type_per_edge, stable=True)
            ends = ends[0][order], ends[1][order]
        columns = ops.coo_to_csc(*ends, self.total_num_nodes)
        order = columns.order if order is None else order[columns.order]
        attributes = {name: values[order] for name, values in self.edge_attributes.items()}
        fields = {**self.fields(), "csc_indptr": columns.indptr, "indices": columns.indices, "edge_type_to_id": names}
        fields["edge_attributes"] = {ORIGINAL_EDGE_ID: order, **attributes}
        fields["type_per_edge"] = None if names is None else self.type_per_edge[order]
        return fused_csc_sampling_graph(**fields)

    def walk(
        self, starts: torch.Tensor, numbers: torch.Tensor, request: WalkRequest, key: int, *, edge_ids: bool
    ) -> Walks:
        """Walk with all steps in a single call, which releases the GIL (see `SamplingGraph`)."""
        own = "pick" in self._own or self.own_method(request.hop(self.edge_types))
        walk = walk_by_hops if own else walk_in_memory
        return walk(self, starts, numbers, request, key, edge_ids=edge_ids)

    def push(self, seeds: torch.Tensor, top: int, alpha: int, bound: int, groups: torch.Tensor) -> Ranked:
        """Push all mass in one call, which releases the GIL (see `SamplingGraph`)."""
        return (rank_by_hops if self._own else rank_in_memory)(self, seeds, top, alpha, bound, groups)

    def prepare_push(self) -> None:
        """Compute the short degrees (see `SamplingGraph`)."""
        short_degrees(self)


@checked
def fused_csc_sampling_graph(
    csc_indptr: torch.Tensor,
    indices: torch.Tensor,
    node_type_offset: torch.Tensor | None = None,
    type_per_edge: torch.Tensor | None = None,
    node_type_to_id: Mapping[str, int] | None = None,
    edge_type_to_id: Mapping[str, int] | None = None,
    node_attributes: Mapping[str, torch.Tensor] | None = None,
    edge_attributes: Mapping[str, torch.Tensor] | None = None,
) -> FusedCSCSamplingGraph:
    """Create a graph from arrays in compressed sparse columns, which are checked in one pass and not copied here.

    NumPy arrays, and objects that NumPy can view, are accepted instead of tensors; lists are copied. For worker
    processes and `pin_memory_()`, your own arrays are copied once, and need memory twice for as long as you keep them.

    The graph and sampled subgraphs keep the dtypes of the arrays. For CPU kernels, int32 column starts are copied to
    int64 once (8 bytes per node), and int16 or int64 edge types to int32 (4 bytes per edge). Sampling is 25 % faster
    on huge pages. NumPy requests these from the system, torch doesn't: load arrays with NumPy.

    Args:
        csc_indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source of each edge, int32 or int64, shape (edges,).
        node_type_offset: First id of each node type, then the number of nodes, shape (node types + 1,).
        type_per_edge: Edge type of each edge, uint8, int16, int32 or int64, ascending inside each column.
        node_type_to_id: Number of each node type.
        edge_type_to_id: Number of each edge type: "source:relation:destination", or a tuple of the three.
        node_attributes: By name, tensors with one row per node.
        edge_attributes: By name, tensors with one row per edge, in the order of `indices`.

    Raises:
        ValueError: The arrays are not valid CSC, lengths don't match, or types don't agree.

    Example:
        >>> fused_csc_sampling_graph(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
        FusedCSCSamplingGraph(num_nodes=3, num_edges=3)
    """
    types = (node_type_offset, type_per_edge, node_type_to_id, edge_type_to_id)
    graph = FusedCSCSamplingGraph(csc_indptr, indices, *types, node_attributes or {}, edge_attributes or {})
    graph.check()
    return graph
