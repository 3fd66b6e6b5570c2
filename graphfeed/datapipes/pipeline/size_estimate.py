"""Estimates of the sizes of mini-batches after each stage, from the pipeline only. They are not upper bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import SamplingRequest, ends_of, seed_type_str_to_ntypes, to_type_dict
from graphfeed.storage.memory import count_bytes

Counts: TypeAlias = Mapping[str | None, float]
"""Numbers of nodes or edges by type; the type is None in a graph without types."""
OFFSET_BYTES = 8
"""Size of an edge id, and of a column's start."""


@dataclass(frozen=True)
class BatchSizeEstimate:
    """Bytes of a mini-batch's tensors, each counted once, and the counts that the sizes of later tensors depend on."""

    num_bytes: float
    seeds: Counts
    """Nodes that sampling starts from: the seeds, or all endpoints of edge seeds."""
    seed_rows: float
    """Number of seeds: equal to the number of nodes, or smaller for edge seeds."""
    nodes: Counts
    """Nodes whose features are fetched."""
    edges: tuple[Counts, ...] = ()
    """Edges of each hop, outermost hop first."""
    seed_edges: Counts = field(default_factory=dict)
    """Edge seeds that have ids."""
    id_bytes: int = 8
    """Size of a node id."""

    def plus(self, num_bytes: float) -> "BatchSizeEstimate":
        """Return the estimate with additional bytes."""
        return replace(self, num_bytes=self.num_bytes + num_bytes)


def measure_items(minibatch: Any) -> BatchSizeEstimate | None:
    """Return the size of a mini-batch of items; None if it has no seeds."""
    seeds = minibatch.seeds if isinstance(minibatch, MiniBatch) else None
    if seeds is None:
        return None
    num_bytes = count_bytes(minibatch)
    parts: dict[str | None, torch.Tensor] = to_type_dict(seeds)
    counts: dict[str | None, float] = {}
    for seed_type, part in parts.items():
        one_each = seed_type is None or part.dim() == 1
        for node_type in [seed_type] if one_each else seed_type_str_to_ntypes(str(seed_type), part.shape[1]):
            counts[node_type] = counts.get(node_type, 0) + (part.numel() if one_each else len(part))
    rows = sum(len(part) for part in parts.values())
    width = max((part.element_size() for part in parts.values()), default=8)
    own = {} if minibatch.seed_edge_ids is None else to_type_dict(minibatch.seed_edge_ids)
    edges = {seed_type: len(ids) for seed_type, ids in own.items()}
    return BatchSizeEstimate(num_bytes, counts, rows, counts, seed_edges=edges, id_bytes=width)


def estimate_hops(
    before: BatchSizeEstimate | None, graph: SamplingGraph, request: SamplingRequest
) -> BatchSizeEstimate | None:
    """Return the estimate after sampling; None if the seeds are unknown, or of types that the graph doesn't have."""
    nodes, all_edges = to_type_dict(graph.num_nodes), to_type_dict(graph.num_edges)
    if before is None or not before.seeds.keys() <= nodes.keys():
        return None
    columns = {node_type: float(before.seeds.get(node_type, 0)) for node_type in nodes}
    total = 0.0
    if sum(columns.values()) > before.seed_rows:
        # Each distinct endpoint of the edge seeds is sampled once; the positions of the endpoints are one more tensor.
        columns = {node_type: distinct(0, count, nodes[node_type]) for node_type, count in columns.items()}
        total += before.id_bytes * (sum(columns.values()) + sum(before.seeds.values()))
    # Every node is assumed to have the average number of in-edges, limited by the fan-out, with uniform sources. If
    # some nodes are the sources of very many edges, there are fewer nodes than estimated; if these nodes have many
    # in-edges too, there are more edges. Times, weights of 0 and the shared neighbours of LABOR, which all make
    # mini-batches smaller, are ignored.
    layers: list[Counts] = []
    for fanout in reversed(request.fanouts):
        degrees = {edge_type: count / max(nodes[ends_of(edge_type)[1]], 1) for edge_type, count in all_edges.items()}
        chosen = choose(degrees, fanout, replace_edges=request.replace)
        edges = {edge_type: columns[ends_of(edge_type)[1]] * count for edge_type, count in chosen.items()}
        # The start of each column, and the end of the last one.
        starts = sum(columns[ends_of(edge_type)[1]] + 1 for edge_type in edges)
        arriving = dict.fromkeys(columns, 0.0)
        for edge_type, count in edges.items():
            arriving[ends_of(edge_type)[0]] += count
        columns = {
            name: distinct(count, arriving[name], nodes[name]) if request.deduplicate else count + arriving[name]
            for name, count in columns.items()
        }
        per_edge = before.id_bytes + OFFSET_BYTES
        total += OFFSET_BYTES * starts + per_edge * sum(edges.values()) + before.id_bytes * sum(columns.values())
        layers.insert(0, edges)
    return replace(before.plus(total), nodes=columns, edges=tuple(layers))


def choose(degrees: Counts, fanout: Sequence[int], *, replace_edges: bool) -> Counts:
    """Return the number of in-edges of each type that are sampled for a node, from the number that it has."""

    def limited(degree: float, limit: int) -> float:
        if limit < 0:
            return degree
        return float(limit) if replace_edges and degree > 0 else min(degree, limit)

    if len(fanout) > 1:
        # Each edge type has a separate limit.
        return {name: limited(degree, limit) for (name, degree), limit in zip(degrees.items(), fanout, strict=True)}
    chosen: dict[str | None, float] = {}
    for edge_type, degree in degrees.items():
        # One limit applies to all in-edges of a node together.
        together = sum(other for name, other in degrees.items() if ends_of(name)[1] == ends_of(edge_type)[1])
        chosen[edge_type] = limited(together, fanout[0]) * degree / together if together else 0.0
    return chosen


def distinct(already: float, drawn: float, size: float) -> float:
    """Return the number of distinct nodes among `size` if some are reached already and others are drawn from all."""
    if size <= 0:
        return already
    # Each node is missed by all draws with a probability of about exp(-drawn / size).
    return max(already, size - max(size - already, 0.0) * exp(-drawn / size))
