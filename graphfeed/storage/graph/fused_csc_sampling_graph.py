"""The graph in memory: compressed sparse columns, all types in one id space."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, overload

import torch

from graphfeed import ops
from graphfeed.ops.checks import check_ids_of_each, check_vector
from graphfeed.ops.completed_future import CompletedFuture
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.cached_edge_values import EdgeValues
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling_graph import parse_seeds
from graphfeed.storage.graph.temporal_sampling import TemporalSampling

ORIGINAL_EDGE_ID = "_ORIGINAL_EDGE_ID"
"""The edge attribute that holds each edge's row in its own type's edge list."""


class FusedCSCSamplingGraph(TemporalSampling):
    """A graph in compressed sparse columns: column = destination, `indices` = sources; made by a function, not here.

    With types, node ids are stacked type after type in the order of `node_type_to_id`, and inside a column the edges
    ascend by edge type. Pickles as a shared-memory handle, so a worker maps what its parent holds.
    """

    @overload
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        async_op: Literal[False] = False,
        *,
        key: int | None = None,
    ) -> SampledSubgraph: ...

    @overload
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        *,
        async_op: Literal[True],
        key: int | None = None,
    ) -> CompletedFuture: ...

    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        async_op: bool = False,
        *,
        key: int | None = None,
    ) -> SampledSubgraph | CompletedFuture:
        """Sample in-edges of the seeds: one hop, with the ids of the graph.

        Args:
            seeds: Node ids of the dtype of `indices`; by node type if the graph has types. A type that is left out
                has none.
            fanouts: Shape (1,) for all edges of a node together, or one an edge type; -1 takes all.
            replace: Whether an edge may be chosen more than once.
            probs_name: The edge attribute that holds weights or a mask; 0 is never drawn.
            returning_indices_and_original_edge_ids_are_optional: Has no effect: both are always returned.
            async_op: Whether to return something whose `wait()` returns the result, which is computed at once.
            key: Key of the hop (`Key.at`); what `draw_key` gives if None.

        Returns:
            Every edge type of the graph, each with one column for each seed of its destination type.

        Raises:
            KeyError: A node type or an attribute that the graph hasn't got.
            TypeError: Seeds of another dtype, or not by type where the graph has types.
            ValueError: A seed outside of the graph, or a wrong fan-out.
        """
        drawn = ops.draw_key() if key is None else key
        weights = None if probs_name is None else self.prepare_weights(probs_name)
        pick = partial(
            ops.sample_neighbors, self.csc_indptr, fanouts=fanouts, key=drawn, replace=replace, cumulative=weights,
            checked=self.node_type_to_id is not None,
        )  # fmt: skip
        del returning_indices_and_original_edge_ids_are_optional
        result = self._sample(seeds, pick)
        return CompletedFuture(result) if async_op else result

    @overload
    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
        async_op: Literal[False] = False,
    ) -> SampledSubgraph: ...

    @overload
    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
        *,
        async_op: Literal[True],
    ) -> CompletedFuture: ...

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        returning_indices_and_original_edge_ids_are_optional: bool = False,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
        async_op: bool = False,
    ) -> SampledSubgraph | CompletedFuture:
        """Do as `sample_neighbors`, but by variates of the neighbours (LABOR): columns choose the same neighbours.

        Args:
            seeds: This, `fanouts`, `replace` and `probs_name` are as there.
            returning_indices_and_original_edge_ids_are_optional: As there.
            random_seed: One or two whole numbers, of which 64 bits count; calls of equal ones share the variates.
                What `draw_key` gives if None.
            seed2_contribution: From 0 to 1: which part of the nodes draws by the second seed. As it grows, each node
                goes over once, at a point of its own.
            async_op: As there.
        """
        del returning_indices_and_original_edge_ids_are_optional
        keys, share = parse_seeds(random_seed, seed2_contribution)
        weights = None if probs_name is None else self.prepare_weights(probs_name)
        pick = partial(
            ops.labor_sample_neighbors, self.csc_indptr, self.indices, fanouts=fanouts, keys=keys, share=share,
            replace=replace, cumulative=weights, checked=self.node_type_to_id is not None,
        )  # fmt: skip
        result = self._sample(seeds, pick)
        return CompletedFuture(result) if async_op else result

    def sample_hops(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Sample all hops; without types in one call that holds no interpreter lock (see `SamplingGraph`)."""
        if self.node_type_to_id is None and all(fanout.numel() == 1 for fanout in fanouts):
            layers = ops.sample_hops(
                self.csc_indptr,
                self.indices,
                self._check_seeds(seeds),
                [int(fanout) for fanout in reversed(fanouts)],
                keys,
                replace=replace,
                cumulative=None if probs_name is None else self.prepare_weights(probs_name),
            )
            if layers is not None:
                return self._subgraphs(layers)
        return super().sample_hops(seeds, fanouts, keys, replace, probs_name)

    def labor_sample_hops(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        random_seeds: Sequence[tuple[int, int]],
        seed2_contribution: float = 0.0,
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Sample all hops; without types in one call that holds no interpreter lock (see `SamplingGraph`)."""
        if self.node_type_to_id is None and all(fanout.numel() == 1 for fanout in fanouts):
            pairs = [parse_seeds(pair, seed2_contribution) for pair in random_seeds]
            ids = self._check_seeds(seeds)
            # Of a pinned graph too, whole columns are read by a GPU.
            indexed = ids.is_cpu and probs_name is None and not replace
            layers = ops.labor_sample_hops(
                self.csc_indptr,
                self.indices,
                ids,
                [int(fanout) for fanout in reversed(fanouts)],
                [keys for keys, _ in pairs],
                share=pairs[0][1],
                replace=replace,
                cumulative=None if probs_name is None else self.prepare_weights(probs_name),
                hubs=self.prepare_hubs() if indexed else None,
            )
            if layers is not None:
                return self._subgraphs(layers)
        return super().labor_sample_hops(seeds, fanouts, random_seeds, seed2_contribution, replace, probs_name)

    def _subgraphs(self, layers: Sequence[ops.Layer]) -> list[SampledSubgraph]:
        return [
            SampledSubgraph(CSCFormatBase(indptr, indices), columns, rows, self._edge_ids(positions))
            for columns, rows, indptr, indices, positions in reversed(layers)
        ]

    def _edge_ids(self, positions: torch.Tensor) -> torch.Tensor:
        original = self.edge_attributes.get(ORIGINAL_EDGE_ID)
        return positions if original is None else take_rows(original, positions)

    def _check_seeds(self, seeds: ByType, name: str = "seeds") -> torch.Tensor:
        if isinstance(seeds, dict):
            raise TypeError(f"{name} is a dict by type, but the graph has one type; give a tensor of node ids")
        if getattr(seeds, "dtype", self.indices.dtype) != self.indices.dtype:
            raise TypeError(
                f"Data type of {name} must be consistent with indices.dtype ({self.indices.dtype}), but got "
                f"{seeds.dtype}; convert with .to({self.indices.dtype})"
            )
        check_vector(name, seeds)
        return seeds

    def _check_typed_seeds(self, seeds: ByType) -> dict[str, torch.Tensor]:
        assert self.node_type_to_id is not None
        if not isinstance(seeds, dict):
            raise TypeError(
                f"seeds must be a dict by node type, for the graph has types {list(self.node_type_to_id)}, "
                f"but is a {type(seeds).__name__}; give the item set as HeteroItemSet"
            )
        unknown = sorted(set(seeds) - set(self.node_type_to_id))
        if unknown:
            raise KeyError(f"seeds have node type {unknown[0]!r}, but the graph has {list(self.node_type_to_id)}")
        num_nodes = self.num_nodes
        assert isinstance(num_nodes, dict)
        device = next((part.device for part in seeds.values()), self.indices.device)
        empty = torch.empty(0, dtype=self.indices.dtype, device=device)
        complete = {}
        for kind in num_nodes:
            complete[kind] = self._check_seeds(seeds.get(kind, empty), f"seeds of type {kind!r}")
        check_ids_of_each(complete, num_nodes, "seeds of type")
        return complete

    def _sample(self, seeds: ByType, pick: Callable[..., ops.Picks]) -> SampledSubgraph:
        if self.node_type_to_id is not None:
            return self._sample_by_type(self._check_typed_seeds(seeds), pick)
        ids = self._check_seeds(seeds)
        hop = self._open_hop(ids)
        picks = hop.pick(pick)
        sources, edge_ids = hop.read(picks)
        return SampledSubgraph(CSCFormatBase(picks.offsets.to(self.csc_indptr.dtype), sources), ids, None, edge_ids)

    def _open_hop(self, ids: torch.Tensor) -> "Hop":
        return Hop(self, ids)

    def _sample_by_type(self, seeds: dict[str, torch.Tensor], pick: Callable[..., ops.Picks]) -> SampledSubgraph:
        assert self.type_per_edge is not None
        assert self.node_type_to_id is not None
        assert self.edge_type_to_id is not None
        offsets = dict(zip(seeds, self._first_ids(), strict=False))
        ids = torch.cat([part + offsets[kind] for kind, part in seeds.items()])
        starts = torch.tensor([0, *(len(part) for part in seeds.values())]).cumsum(0)
        kinds = sorted(self.edge_type_to_id, key=self.edge_type_to_id.__getitem__)
        ends = torch.tensor([self.node_type_to_id[kind.split(":")[2]] for kind in kinds])
        hop = self._open_hop(ids)
        types = hop.given(self.type_per_edge)
        picks = hop.pick(pick, types=types, num_types=len(kinds))
        typed = ops.group_by_type(picks, types, starts, ends, self.csc_indptr.dtype)
        sources, edge_ids = hop.read(picks, typed)
        rows, edges = typed.bounds.tolist(), typed.starts.tolist()
        cscs, original = {}, {}
        for kind, number in self.edge_type_to_id.items():
            own = slice(edges[number], edges[number + 1])
            cscs[kind] = CSCFormatBase(
                typed.indptr[rows[number] : rows[number + 1]],
                sources[own] - offsets[kind.split(":")[0]],
            )
            original[kind] = edge_ids[own]
        return SampledSubgraph(cscs, seeds, None, original)


class Hop:
    """How the edges around some nodes are read, for one hop."""

    def __init__(self, graph: FusedCSCSamplingGraph, ids: torch.Tensor) -> None:
        self.graph = graph
        self.ids = ids

    def given(self, values: torch.Tensor) -> EdgeValues:
        """Return values of the graph's edges as ops of this hop are given them."""
        return values

    def pick(self, pick: Callable[..., ops.Picks], **types: Any) -> ops.Picks:
        """Choose edges."""
        return pick(self.ids, **types)

    def read(self, picks: ops.Picks, typed: ops.TypedPicks | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sources and the ids of the edges that were picked, by type where they were grouped so."""
        positions = picks.positions if typed is None else typed.positions
        return take_rows(self.graph.indices, positions), self.graph._edge_ids(positions)


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
    """Make a graph of arrays in compressed sparse columns; they are checked in one pass and not copied.

    Sampling reads them at random, and is a quarter faster on huge pages. NumPy asks the system for those when it
    allocates, torch does not: load large arrays by NumPy.

    Args:
        csc_indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source of each edge, int32 or int64, shape (edges,).
        node_type_offset: First id of each node type, and the number of nodes, shape (node types + 1,).
        type_per_edge: Edge type of each edge, uint8 to int64, ascending inside each column.
        node_type_to_id: Number of each node type.
        edge_type_to_id: Number of each edge type "source:relation:destination".
        node_attributes: Name to tensor with a row a node.
        edge_attributes: Name to tensor with a row an edge, in the order of `indices`.

    Raises:
        TypeError: Arrays of another dtype.
        ValueError: Arrays that are no CSC, lengths that don't match, or types that don't agree.

    Example:
        >>> fused_csc_sampling_graph(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
        FusedCSCSamplingGraph(num_nodes=3, num_edges=3)
    """
    graph = FusedCSCSamplingGraph(
        csc_indptr,
        indices,
        node_type_offset,
        type_per_edge,
        node_type_to_id,
        edge_type_to_id,
        node_attributes or {},
        edge_attributes or {},
    )
    graph.check()
    return graph
