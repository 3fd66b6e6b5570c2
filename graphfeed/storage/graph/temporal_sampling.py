"""Sampling in time: the part of the graph in memory that knows timestamps."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.rows.gather import take_rows
from graphfeed.storage.graph.compaction import compact_csc_format
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling_graph import SamplingGraph, parse_seeds
from graphfeed.storage.graph.temporal_query import Strategy, TemporalQuery

TIMES_LOCK = threading.Lock()
Tensors = tuple[torch.Tensor | None, ...]


class TemporalSampling(GraphArrays, SamplingGraph):
    """Samples neighbours that were there before a time; a part of `FusedCSCSamplingGraph`.

    Timestamps are integers, one a node or one an edge, and become int64. At the first call the edges of each column are
    brought into the order of time. That costs no memory where they are in this order already, as in a graph made of an
    edge list in the order of time, and where only the edges have int64 times; else 8 bytes an edge, and 8 more where
    they are not in order. With weights and edges not in order, 8 more; where nodes and edges have times and there is
    a window, 8 more. Where fan-outs by edge type are used beside others, each needs an order of its own.
    """

    @abstractmethod
    def _check_seeds(self, seeds: ByType, name: str = "seeds") -> torch.Tensor: ...

    @abstractmethod
    def _sample(self, seeds: ByType, pick: Callable[..., ops.Picks]) -> SampledSubgraph: ...

    @abstractmethod
    def _subgraphs(self, layers: Sequence[ops.Layer]) -> list[SampledSubgraph]: ...

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
        """Sample in-edges of the seeds that are before their times: one hop, with the ids of the graph.

        An edge is eligible if the time of its source node, and its own, lie strictly between `time - window` and
        `time`: both ends are left out, as GraphBolt does (its documentation says otherwise). A time whose attribute is
        not named is not looked at; without both nothing is kept out. Of a node that has several times each is a seed
        of its own.

        Args:
            seeds: Node ids of the dtype of `indices`; by node type if the graph has types.
            seeds_timestamp: The time of each seed, any integers; by node type as the seeds are.
            fanouts: Shape (1,) for all edges of a node together, or one an edge type; -1 takes all.
            replace: Whether an edge may be chosen more than once.
            seeds_pre_time_window: How far back each seed may look, 0 or more; None: as far as there is.
            probs_name: The edge attribute that holds weights or a mask; 0 is never drawn.
            node_timestamp_attr_name: The node attribute that holds integer times, for all node types.
            edge_timestamp_attr_name: The edge attribute that holds integer times, for all edge types.
            strategy: "uniform" draws at random; "latest" takes the edges of the highest times, of equal ones those that
                come last in the graph. With both times an edge counts as late as the later one.
            key: Key of the hop (`Key.at`); what `draw_key` gives if None.

        Returns:
            Every edge type of the graph, each with one column for each seed of its destination type.

        Raises:
            KeyError: A node type or an attribute that the graph hasn't got.
            TypeError: Times that are not integers; and what `sample_neighbors` raises.
            ValueError: Not as many times or windows as seeds, a negative window, or weights or replacement together
                with "latest"; and what `sample_neighbors` raises.
        """
        names = (node_timestamp_attr_name, edge_timestamp_attr_name)
        rule = TemporalQuery(*names, replace, probs_name, strategy, seeds_pre_time_window)
        drawn = ops.draw_key() if key is None else key
        return self._timed_hop(seeds, seeds_timestamp, fanouts, ((drawn, drawn), 0), rule)[0]

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
        """Do as `temporal_sample_neighbors`, but by variates of the neighbours (LABOR), the same at all times.

        Args:
            seeds: This, and what follows up to the attribute names, is as there.
            seeds_timestamp: The time of each seed.
            fanouts: One number, or one an edge type.
            replace: Whether an edge may be chosen more than once.
            seeds_pre_time_window: How far back each seed may look.
            probs_name: The edge attribute that holds weights or a mask.
            node_timestamp_attr_name: The node attribute that holds times.
            edge_timestamp_attr_name: The edge attribute that holds times.
            random_seed: One or two whole numbers; calls of equal ones share the variates (`sample_layer_neighbors`).
            seed2_contribution: From 0 to 1: which part of the nodes draws by the second seed.
        """
        names = (node_timestamp_attr_name, edge_timestamp_attr_name)
        rule = TemporalQuery(*names, replace, probs_name, "labor", seeds_pre_time_window)
        return self._timed_hop(seeds, seeds_timestamp, fanouts, parse_seeds(random_seed, seed2_contribution), rule)[0]

    def temporal_sample_hops(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        rule: TemporalQuery,
    ) -> list[SampledSubgraph]:
        """Sample all hops; mostly in one call that holds no interpreter lock (see `SamplingGraph`).

        With types, with a window a seed, or with a window where nodes and edges have times, hop after hop.
        """
        window = rule.pre_time_window
        one_type = self.node_type_to_id is None and all(fanout.numel() == 1 for fanout in fanouts)
        one_time = rule.node_timestamp_attr_name is None or rule.edge_timestamp_attr_name is None
        if not (one_type and (window is None or (one_time and isinstance(window, int)))):
            return self._timed_hops(seeds, seeds_timestamp, fanouts, keys, rule)
        times = self._stack_times("seeds_timestamp", seeds_timestamp, seeds)
        columns, counts = self.prepare_times(rule), [int(fanout) for fanout in reversed(fanouts)]
        ids = self._check_seeds(seeds)
        assert window is None or isinstance(window, int)
        if rule.strategy == "labor":
            pairs = [(key, key) for key in keys]
            layers = ops.temporal_labor_sample_hops(
                columns, ids, times, counts, pairs, replace=rule.replace, window=window
            )  # fmt: skip
        else:
            layers = ops.temporal_sample_hops(
                columns, ids, times, counts, keys, replace=rule.replace, latest=rule.strategy == "latest", window=window
            )
        return self._subgraphs(layers)

    def prepare_times(self, rule: TemporalQuery, *, by_type: bool = False) -> ops.TimedColumns:
        """Return the graph's arrays in the order of time, made at the first call of each pair of attributes.

        Args:
            rule: Which attributes hold times and weights, and whether there is a window.
            by_type: Whether the edges of each type are to be in order by themselves, for fan-outs by edge type.
        """
        names = (rule.node_timestamp_attr_name, rule.edge_timestamp_attr_name)
        node, edge = self._stamps(*names)
        columns = ops.TimedColumns(self.csc_indptr, self.indices)
        if node is not None or edge is not None:
            place = ("order", *names, by_type)
            times, kept, links = self._remember(place, (node, edge), lambda: self._order(node, edge, by_type))
            order = kept if links is None else ops.linked_order(links)
            columns = columns._replace(times=times, order=order, links=links)
        if node is not None and edge is not None and rule.pre_time_window is not None:
            place = ("earliest", *names, by_type)
            (earliest,) = self._remember(
                place,
                (node, edge, columns.order if columns.links is None else columns.links),
                lambda: (self._by_rank(self._join(node, edge, last=False), columns.order),),
            )
            columns = columns._replace(earliest=earliest)
        if rule.hop_time == "edge":
            (own,) = self._remember(("own", names[1]), (edge,), lambda: (self._join(None, edge),))
            columns = columns._replace(edge_times=own)
        if rule.probs_name is not None and columns.order is None:
            columns = columns._replace(cumulative=self.prepare_weights(rule.probs_name))
        elif rule.probs_name is not None:
            weights = self.edge_attribute(rule.probs_name)
            (cumulative,) = self._remember(
                ("weights", *names, by_type, rule.probs_name),
                (weights, columns.order if columns.links is None else columns.links),
                lambda: (ops.cumulate_weights(self.csc_indptr, self._by_rank(weights, columns.order)),),
            )
            columns = columns._replace(cumulative=cumulative)
        return columns

    def _stamps(self, node_name: str | None, edge_name: str | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return (
            None if node_name is None else self.node_attribute(node_name),
            None if edge_name is None else self.edge_attribute(edge_name),
        )

    def _remember(self, place: tuple[Any, ...], sources: Tensors, make: Callable[[], Tensors]) -> Tensors:
        with TIMES_LOCK:
            made: dict[tuple[Any, ...], tuple[Tensors, Tensors]] = vars(self).setdefault("_timed", {})
            known = made.get(place)
            if known is None or any(old is not new for old, new in zip(known[0], sources, strict=True)):
                known = (sources, make())
                made[place] = known
                # What kernels read beside a page-locked graph has to be page-locked as well.
                for tensor in known[1] if self.indices.is_pinned() else ():
                    if tensor is not None:
                        ops.pin_in_place(tensor, self)
        return known[1]

    def _join(self, node: torch.Tensor | None, edge: torch.Tensor | None, *, last: bool = True) -> torch.Tensor:
        """Return the time of each edge: of its own and its source's the last, or else the first."""
        times = []
        if edge is not None:
            times.append(ops.as_times("the edges' timestamps", edge))
        if node is not None:
            times.append(ops.gather_rows(ops.as_times("the nodes' timestamps", node), self.indices))
        if len(times) == 1:
            return times[0]
        return torch.maximum(*times) if last else torch.minimum(*times)

    def _order(self, node: torch.Tensor | None, edge: torch.Tensor | None, by_type: bool) -> Tensors:
        kinds = self.type_per_edge if by_type else None
        times, order = ops.order_by_time(self.csc_indptr, self._join(node, edge), kinds)
        if order is None or not order.is_cpu or self.indices.is_pinned():
            return times, order, None
        links = ops.link_sources(self.csc_indptr, self.indices, order)
        return times, order if links is None else None, links

    def _by_rank(self, values: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
        if order is None:
            return values
        return ops.gather_rows(values, ops.places_in_order(self.csc_indptr, order))

    def _stack_times(self, name: str, values: ByType | None, seeds: ByType) -> torch.Tensor:
        """Return a number a seed, of all node types one after the other; ids are not looked at."""
        if values is None:
            raise ValueError(f"{name} must be provided for temporal neighbor sampling; name an item 'timestamp'")
        if self.node_type_to_id is None or not isinstance(seeds, Mapping):
            parts = [(name, values, len(seeds))]
        else:
            if not isinstance(values, Mapping):
                raise TypeError(f"{name} must be a dict by node type, as seeds is, but is a {type(values).__name__}")
            unknown = sorted(set(values) - set(self.node_type_to_id))
            if unknown:
                raise KeyError(f"{name} has node type {unknown[0]!r}, but the graph has {list(self.node_type_to_id)}")
            none = no_times(values)
            by_id = sorted(self.node_type_to_id, key=self.node_type_to_id.__getitem__)
            parts = [(f"{name}[{kind!r}]", values.get(kind, none), len(seeds.get(kind, none))) for kind in by_id]
        stacked = []
        for label, part, count in parts:
            stacked.append(ops.as_times(label, part))
            if stacked[-1].numel() != count:
                raise ValueError(f"{label} must have {count} values, one a seed, but has {stacked[-1].numel()}")
        return stacked[0] if len(stacked) == 1 else torch.cat(stacked)

    def _timed_hop(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: torch.Tensor,
        draws: tuple[tuple[int, int], int],
        rule: TemporalQuery,
    ) -> tuple[SampledSubgraph, ops.Picks]:
        times = self._stack_times("seeds_timestamp", seeds_timestamp, seeds)
        window, windows = rule.pre_time_window, None
        if isinstance(window, int):
            windows = torch.full_like(times, window)
        elif window is not None:
            windows = self._stack_times("seeds_pre_time_window", window, seeds)
        columns = self.prepare_times(rule, by_type=fanouts.numel() > 1)
        (key, then), share = draws
        made: list[ops.Picks] = []

        def pick(ids: torch.Tensor, types: torch.Tensor | None = None, num_types: int = 1) -> ops.Picks:
            asked = (columns._replace(types=types, num_types=num_types), ids, times, fanouts)
            if rule.strategy == "labor":
                picks = ops.temporal_labor_sample_neighbors(
                    *asked, (key, then), share=share, replace=rule.replace, windows=windows
                )  # fmt: skip
            else:
                latest = rule.strategy == "latest"
                picks = ops.temporal_sample_neighbors(
                    *asked, key, replace=rule.replace, latest=latest, windows=windows
                )  # fmt: skip
            made.append(picks)
            return picks

        return self._sample(seeds, pick), made[0]

    def _timed_hops(
        self,
        seeds: ByType,
        seeds_timestamp: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        rule: TemporalQuery,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop, each from all rows so far; every edge makes a row."""
        layers: list[SampledSubgraph] = []
        nodes: Any = seeds
        times: Any = seeds_timestamp
        for fanout, key in zip(reversed(fanouts), keys, strict=True):
            hop, picks = self._timed_hop(nodes, times, fanout, ((key, key), 0), rule)
            columns: Any = hop.original_column_node_ids
            sampled: Any = hop.sampled_csc
            nodes, csc, row_times = compact_csc_format(sampled, columns, times)
            if rule.hop_time == "edge":
                row_times = self._times_of_edges(hop, picks, times, rule)
            if rule.pre_time_window is not None and not isinstance(rule.pre_time_window, int):
                windows: Any = rule.pre_time_window
                rule = replace(rule, pre_time_window=compact_csc_format(sampled, columns, windows)[2])
            times = row_times
            layers.append(SampledSubgraph(csc, columns, nodes, hop.original_edge_ids))
        return layers[::-1]

    def _times_of_edges(self, hop: SampledSubgraph, picks: ops.Picks, times: Any, rule: TemporalQuery) -> ByType:
        """Return the time of each row: the seeds' own, then for each edge its own, as rows are made of a hop."""
        edge_times = self.prepare_times(rule).edge_times
        assert edge_times is not None
        if not isinstance(hop.sampled_csc, dict):
            return torch.cat([ops.as_times("seeds_timestamp", times), take_rows(edge_times, picks.positions)])
        assert self.type_per_edge is not None
        assert self.edge_type_to_id is not None
        # The edges of a type are in the order in which the graph has grouped them: column by column, then by position.
        kinds = take_rows(self.type_per_edge, picks.positions)
        grouped = take_rows(edge_times, picks.positions[kinds.argsort(stable=True)])
        by_id = sorted(self.edge_type_to_id, key=self.edge_type_to_id.__getitem__)
        counts = [len(hop.sampled_csc[kind].indices) for kind in by_id]
        own = dict(zip(by_id, torch.split(grouped, counts), strict=True))
        columns: Any = hop.original_column_node_ids
        none = no_times(times)
        rows = {kind: [ops.as_times("seeds_timestamp", times.get(kind, none))] for kind in columns}
        for edge_type in hop.sampled_csc:
            rows[edge_type.split(":")[0]].append(own[edge_type])
        return {kind: torch.cat(parts) for kind, parts in rows.items()}


def no_times(values: Mapping[str, object]) -> torch.Tensor:
    """Return the times of a type that has none, where those of the others lie."""
    device = next((part.device for part in values.values() if isinstance(part, torch.Tensor)), None)
    return torch.empty(0, dtype=torch.int64, device=device)
