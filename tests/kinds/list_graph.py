"""A user-defined graph in Python lists, whose edges are picked by the slow reference."""

from collections.abc import Sequence
from typing import Any

import torch

import graphfeed as gf
from graphfeed.storage.graph import Hop
from tests.kinds import reference


class ListGraph(gf.SamplingGraph):
    """The minimum of a user-defined graph: two numbers and one hop."""

    num_nodes = num_edges = 0

    def __init__(self, whole: gf.FusedCSCSamplingGraph) -> None:
        self.num_nodes, self.num_edges = whole.total_num_nodes, whole.total_num_edges
        self.indptr, self.indices = whole.csc_indptr.tolist(), whole.indices.tolist()
        self.ids = whole.edge_attribute(gf.ORIGINAL_EDGE_ID).tolist()
        self.attributes = {name: values.tolist() for name, values in whole.edge_attributes.items()}
        self.born = {name: values.tolist() for name, values in whole.node_attributes.items()}

    def units(self, name: str | None) -> list[int] | None:
        """Return the weights of the edges as integers."""
        return None if name is None else reference.weights_to_units(self.indptr, self.attributes[name])

    def hop(self, seeds: torch.Tensor, picked: list[list[int]]) -> gf.SampledSubgraph:
        """Return the picked edges of each seed as a subgraph."""
        edges = reference.join(picked)
        sources = torch.tensor([self.indices[edge] for edge in edges], dtype=torch.int64)
        ids = torch.tensor([self.ids[edge] for edge in edges], dtype=torch.int64)
        columns = torch.tensor(reference.running_sum(map(len, picked)))
        return gf.SampledSubgraph(gf.CSCFormatBase(columns, sources), seeds, None, ids)

    def sample_neighbors(
        self,
        seeds: torch.Tensor,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        own = gf.draw_key() if key is None else key
        graph = reference.Graph(self.indptr, self.indices, units=self.units(probs_name))
        return self.hop(seeds, reference.pick_edges(graph, seeds.tolist(), fanouts.tolist(), own, replace=replace))


class FullListGraph(ListGraph):
    """A list graph with LABOR and temporal sampling."""

    def sample_layer_neighbors(
        self,
        seeds: torch.Tensor,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> gf.SampledSubgraph:
        keys = [gf.draw_key()] if random_seed is None else [int(seed) for seed in random_seed]
        draws = ((keys[0], keys[-1]), int(seed2_contribution * 2**64))
        graph = reference.Graph(self.indptr, self.indices, units=self.units(probs_name))
        return self.hop(
            seeds, reference.pick_edges(graph, seeds.tolist(), fanouts.tolist(), draws, "labor", replace=replace)
        )

    def pick(self, nodes: torch.Tensor, hop: Hop) -> Any:
        """Return the picked edges of each node in its period."""
        request, query, times = hop.request, hop.request.temporal, hop.times
        if query is None:
            return super().pick(nodes, hop)
        assert isinstance(times, torch.Tensor)
        born = None if query.node_timestamp_attr_name is None else self.born[query.node_timestamp_attr_name]
        made = None if query.edge_timestamp_attr_name is None else self.attributes[query.edge_timestamp_attr_name]
        stamps = [
            ([] if born is None else [born[source]]) + ([] if made is None else [made[edge]])
            for edge, source in enumerate(self.indices)
        ]
        windows = [query.pre_time_window] * len(nodes)
        if isinstance(hop.windows, torch.Tensor):
            windows = hop.windows.tolist()
        periods = [self.period(query, time, own) for time, own in zip(times.tolist(), windows, strict=True)]
        columns = list(zip(nodes.tolist(), periods, strict=True))
        graph = reference.Graph(self.indptr, self.indices, None, self.units(request.probs_name), stamps)
        picked = reference.pick_edges(
            graph, columns, [int(hop.fanout)], int(hop.draws[0][0]), request.strategy, request.replace
        )
        by_edge = [] if made is None else [made[edge] for edge in reference.join(picked)]
        return self.hop(nodes, picked), torch.tensor(by_edge) if query.hop_time == "edge" else None

    @staticmethod
    def period(query: gf.TemporalQuery, time: int, window: int | None) -> tuple[int | None, int]:
        """Return the first time of a column's period, and the time at its end, which is excluded."""
        first = None if window is None else time - window + (not query.inclusive)
        return first, time + query.inclusive
