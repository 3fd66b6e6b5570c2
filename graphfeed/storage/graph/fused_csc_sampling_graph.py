"""The graph in memory: compressed sparse columns, all types in one id space."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, overload

import torch

from graphfeed import ops
from graphfeed.ops import CompletedFuture
from graphfeed.ops.arguments import check_flags, checked, ignores
from graphfeed.ops.rows import Each
from graphfeed.ops.sampling import JoinedHops
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling.all_hops import (
    pick_each_by_page,
    reads_together,
    sample_all_hops,
    weights_for,
)
from graphfeed.storage.graph.sampling.graph_files import is_by_page, kernel_columns
from graphfeed.storage.graph.sampling.one_hop import check_seeds, sample_one_hop
from graphfeed.storage.graph.sampling.rows import Picked
from graphfeed.storage.graph.sampling.temporal_sampling import mask_of, timed_columns
from graphfeed.storage.graph.sampling_graph import SamplingGraph, Together, check_walks
from graphfeed.storage.graph.sampling_request import (
    Draws,
    Hop,
    SamplingRequest,
    Strategy,
    TemporalQuery,
    draws_of,
    method_of,
    parse_seeds,
)

SAMPLES_SHARE = 4
"""Which part of free memory is for mini-batches that are sampled together, rather than for pages."""


class FusedCSCSamplingGraph(GraphArrays, SamplingGraph):
    """A graph in memory in compressed sparse columns: column = destination, `indices` = sources. Functions make it.

    With types, node ids are stacked type after type in the order of `node_type_to_id`, and inside a column the edges
    ascend by edge type. The graph pickles as a shared-memory handle, so workers map the memory of their parent.
    """

    _own: ClassVar[Collection[str]] = ()

    @property
    def edge_types(self) -> list[str]:
        """The edge types "source:relation:destination" in the order of their numbers; empty if there are no types."""
        numbers = self.edge_type_to_id or {}
        return sorted(numbers, key=numbers.__getitem__)

    def validate(self, request: SamplingRequest) -> None:
        """Raise if the graph can't serve a request (see `SamplingGraph`).

        Raises:
            KeyError: The graph doesn't have an attribute that the request names.
            ValueError: Weights in place of a mask for the latest edges.
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
        """Compute the order of time, sums of weights, index of large columns or wider dtypes that a request needs."""
        kernel_columns(self)
        if request.temporal is not None:
            # Fan-outs by type need the edges of each type in the order of time by themselves.
            for by_type in {fanout.numel() > 1 for fanout in request.fanouts}:
                timed_columns(self, request, by_type=by_type)
        elif request.probs_name is not None:
            weights_for(self, request)
        elif request.strategy == "labor" and not request.replace:
            self.high_degree_index()

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
    ) -> CompletedFuture: ...
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
    ) -> SampledSubgraph | CompletedFuture:
        """Sample in-edges of the seeds: one hop, with the ids of the graph.

        Args:
            seeds: Node ids of the dtype of `indices`; by node type if the graph has types. A type that is missing has
                no seeds.
            fanouts: One number for all edge types, shape (1,), or one per edge type; -1 takes all.
            replace: Whether an edge may be chosen more than once.
            probs_name: The edge attribute that holds weights or a mask; 0 is never drawn.
            async_op: Whether to return a future whose `wait()` returns the result; it is computed at once.
            key: The key of the hop (`Key.at`); by default, the result of `draw_key`.

        Returns:
            Every edge type of the graph, each with one column per seed of its destination type.

        Raises:
            KeyError: The graph doesn't have a node type or an attribute.
            TypeError: Seeds of another dtype, or not by type where the graph has types.
            ValueError: A seed outside of the graph, or a wrong fan-out.
        """
        check_flags(async_op=async_op)
        drawn = ops.draw_key() if key is None else key
        request = SamplingRequest((fanouts,), replace, probs_name)
        # Two keys, as LABOR has; others use the first one.
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
    ) -> CompletedFuture: ...
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
    ) -> SampledSubgraph | CompletedFuture:
        """Sample as `sample_neighbors`, but by variates of the neighbours (LABOR): columns choose the same neighbours.

        Args:
            seeds: This and the arguments that are not listed mean the same as there.
            random_seed: One or two whole numbers, of which 64 bits count; calls with equal numbers share the variates.
                By default, the result of `draw_key`.
            seed2_contribution: From 0 to 1: the share of the nodes that draw by the second seed. As it grows, each node
                changes over once, at a point of its own.
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
        """Sample in-edges of the seeds that existed before their times: one hop, with the ids of the graph.

        An edge is eligible if the time of its source node, and its own, lie strictly between `time - window` and
        `time`. Both ends are excluded, as in GraphBolt (its documentation says otherwise). A time whose attribute is
        not named is ignored; without both, all edges are eligible. A node with several times is several seeds.

        Args:
            seeds: This, `fanouts`, `replace`, `probs_name` and `key` mean the same as for `sample_neighbors`.
            seeds_timestamp: The time of each seed, of any integer dtype; by node type as the seeds are.
            seeds_pre_time_window: How far back each seed may look, 0 or more; None: without limit.
            node_timestamp_attr_name: The node attribute that holds integer times. The earliest time of int64, which
                `from_coo` gives to types without times, exists always and is in every window.
            edge_timestamp_attr_name: The same of edges.
            strategy: "uniform" draws at random; "latest" takes the edges with the latest times, among equal times those
                that come last in the graph. An edge with two times is as late as the later one.

        Returns:
            As by `sample_neighbors`: every edge type, each with one column per seed of its destination type.

        Raises:
            ValueError: Another number of times or windows than of seeds, a negative window, or replacement or weights
                that are no mask together with "latest"; and what `sample_neighbors` raises.
        """
        query = TemporalQuery(node_timestamp_attr_name, edge_timestamp_attr_name, seeds_pre_time_window)
        request = SamplingRequest((fanouts,), replace, probs_name, strategy, temporal=query)
        drawn = ops.draw_key() if key is None else key
        return sample_one_hop(self, seeds, Hop(request, ((drawn, drawn), 0), times=seeds_timestamp))[0]

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
        """Sample as `temporal_sample_neighbors`, but by variates of the neighbours (LABOR), the same at all times.

        The other arguments mean the same as there.

        Args:
            random_seed, seed2_contribution: As for `sample_layer_neighbors`.
        """
        query = TemporalQuery(node_timestamp_attr_name, edge_timestamp_attr_name, seeds_pre_time_window)
        request = SamplingRequest((fanouts,), replace, probs_name, "labor", temporal=query)
        draws = parse_seeds(random_seed, seed2_contribution)
        return sample_one_hop(self, seeds, Hop(request, draws, times=seeds_timestamp))[0]

    def sample_drawn(
        self, seeds: ByType, request: SamplingRequest, draws: Sequence[Draws], times: ByType | None
    ) -> list[SampledSubgraph]:
        """Sample all hops, on the CPU in one call that releases the GIL (see `SamplingGraph`)."""
        parts = seeds.values() if isinstance(seeds, dict) else [seeds]
        if not self.samples_at_once(request, on_cpu=all(getattr(part, "is_cpu", True) for part in parts)):
            return super().sample_drawn(seeds, request, draws, times)
        return sample_all_hops(self, seeds, request, draws, times)  # type: ignore[no-any-return]

    def sample_joined(
        self, seeds: ByType, request: SamplingRequest, keys: Sequence[Any], *, seeds_timestamp: ByType | None = None
    ) -> JoinedHops:
        """Sample all hops by one call, which joins them too (see `SamplingGraph`)."""
        parts = seeds.values() if isinstance(seeds, dict) else [seeds]
        on_cpu = self.indices.is_cpu and all(getattr(part, "is_cpu", True) for part in parts)
        if not on_cpu or "sample_hops" in self._own or not self.samples_at_once(request):
            return super().sample_joined(seeds, request, keys, seeds_timestamp=seeds_timestamp)
        draws = draws_of(request, keys)
        return sample_all_hops(self, seeds, request, draws, seeds_timestamp, joined=True)  # type: ignore[no-any-return]

    def sample_hops_together(
        self, seeds: Sequence[ByType], request: SamplingRequest, keys: Sequence[Sequence[int]], each: Each = map
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops of several mini-batches, reading each page of a hop's edges once (see `SamplingGraph`)."""
        if "sample_hops" in self._own or not self._reads_together(request):
            return super().sample_hops_together(seeds, request, keys, each)
        draws = [draws_of(request, own_keys) for own_keys in keys]
        return self.sample_hop_by_hop(seeds, request, draws, each=each)

    def pick(self, nodes: ByType, hop: Hop) -> Picked:
        """Sample one hop, by the method of a subclass if it has written one for that (see `SamplingGraph`)."""
        is_own = method_of(hop.request) in self._own
        return super().pick(nodes, hop) if is_own else sample_one_hop(self, nodes, hop)

    def pick_each(self, nodes: Sequence[ByType], hops: Sequence[Hop], each: Each = map) -> list[Picked]:
        """Do `pick` for several mini-batches; of a graph in files, each page is read once for all of them."""
        if method_of(hops[0].request) in self._own:
            return super().pick_each(nodes, hops, each)
        if len(nodes) == 1 or not self._reads_together(hops[0].request):
            return list(each(self.pick, nodes, hops))
        return pick_each_by_page(self, nodes, hops, each)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Note which methods the subclass has written."""
        super().__init_subclass__(**kwargs)
        names = "sample_neighbors", "sample_layer_neighbors", "pick", "sample_hops"
        cls._own = {name for name in names if getattr(cls, name) is not getattr(FusedCSCSamplingGraph, name)}

    def _has_own_hop(self, request: SamplingRequest) -> bool:
        """Whether a subclass samples a hop of a request in its own way."""
        return "pick" in self._own or method_of(request) in self._own

    def samples_at_once(self, request: SamplingRequest, *, on_cpu: bool = True) -> bool:
        """Return whether all hops of a mini-batch are one call: on the CPU always, but for a subclass with own hops."""
        if self._own and self._has_own_hop(request):
            return False
        # A GPU has kernels for one hop with trees, new rows alone, types in time, or a row per edge without times.
        timed, typed = request.temporal is not None, self.node_type_to_id is not None
        one_by_one = request.only_new or (typed and timed) or not (request.deduplicate or timed)
        return (on_cpu and self.indices.is_cpu) or not one_by_one

    def _reads_together(self, request: SamplingRequest) -> bool:
        """Whether each page of a hop's edges is read once for several mini-batches: only while pages are missing."""
        return not self._has_own_hop(request) and is_by_page(self) and reads_together(self, request)

    def together(self, request: SamplingRequest) -> Together | None:
        """Return how to sample several mini-batches at once, where the graph's files exceed the memory."""
        files = self.files_read()
        # If the files fit into free memory, each page comes from the disk once in any case.
        gains = reads_together(self, request) and files.num_bytes > files.free
        return Together(files.free / SAMPLES_SHARE, by_thread=False) if gains else None

    def random_walks(self, starts: torch.Tensor, length: int, *, key: int | None = None) -> torch.Tensor:
        """Walk at random, all steps in one call that releases the GIL (see `SamplingGraph`)."""
        check_walks(self, length)
        drawn = ops.draw_key() if key is None else key
        starts = check_seeds(self, starts, "starts")
        return ops.random_walks(kernel_columns(self)[0], self.indices, starts, length, drawn).to(starts.dtype)


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
    """Make a graph from arrays in compressed sparse columns, which are checked in one pass and not copied here.

    NumPy arrays and what NumPy can view may take the place of tensors; lists are copied. For worker processes and
    `pin_memory_()`, arrays of your own are copied once, and take memory twice for as long as you keep them.

    The graph keeps the dtypes that it is given, and sampled subgraphs have them. For the CPU's kernels, column starts
    in int32 are copied to int64 once (8 bytes per node), and edge types in int16 or int64 to int32 (4 bytes per edge).
    Sampling is a quarter faster on huge pages. NumPy asks the system for these, torch doesn't: load arrays with NumPy.

    Args:
        csc_indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source of each edge, int32 or int64, shape (edges,).
        node_type_offset: First id of each node type, and the number of nodes, shape (node types + 1,).
        type_per_edge: Edge type of each edge, uint8, int16, int32 or int64, ascending inside each column.
        node_type_to_id: Number of each node type.
        edge_type_to_id: Number of each edge type: "source:relation:destination", or a tuple of the three.
        node_attributes: By name, tensors with one row per node.
        edge_attributes: By name, tensors with one row per edge, in the order of `indices`.

    Raises:
        ValueError: Arrays that are not a valid CSC, lengths that don't match, or types that don't agree.

    Example:
        >>> fused_csc_sampling_graph(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
        FusedCSCSamplingGraph(num_nodes=3, num_edges=3)
    """
    types = (node_type_offset, type_per_edge, node_type_to_id, edge_type_to_id)
    graph = FusedCSCSamplingGraph(csc_indptr, indices, *types, node_attributes or {}, edge_attributes or {})
    graph.check()
    return graph
