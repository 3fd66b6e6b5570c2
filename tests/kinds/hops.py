"""Calls of the operations on hops, by what a test says of a graph and of its draws."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from graphfeed import ops
from graphfeed.ops.arguments import NOTHING, as_tensor
from graphfeed.ops.memory import ReadChoice
from graphfeed.ops.sampling.hops.hop_recipe import Method


def record(
    indptr: torch.Tensor,
    indices: torch.Tensor = NOTHING,
    *,
    types: torch.Tensor | None = None,
    num_types: int = 1,
    **arrays: Any,
) -> ops.Graph:
    """Return the arrays of a graph of one node type, in which edge types join nodes of it."""
    ends = None if types is None else [(0, 0)] * num_types
    return ops.Graph.unchecked(indptr, indices, types=types, ends=ends, **arrays)


def given_arrays(graph: ops.Graph) -> dict[str, Any]:
    """Return the arguments of `Graph.unchecked` that give an equal graph."""
    own = vars(graph)
    names = ("indptr", "indices", "types", "first_ids", "order", "by_column", "by_type", "edge_times", "large_columns")
    ends = list(zip(graph.sources, graph.destinations, strict=True))
    return {name: own[name] for name in (*names, "indptr_dtype")} | {"ends": ends, "cumulative": graph.sums}


def changed(graph: ops.Graph, **arrays: Any) -> ops.Graph:
    """Return the arrays of a graph with some others."""
    return ops.Graph.unchecked(**{**given_arrays(graph), **arrays})


def sample_one(
    graph: ops.Graph,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    *keys: int,
    times: torch.Tensor | None = None,
    windows: torch.Tensor | None = None,
    **drawing: Any,
) -> ops.Picks:
    """Sample one hop, in time if the seeds have times."""
    moments = None if times is None else ops.SeedTimes(times, windows)
    return ops.sample_neighbors(graph, ops.OneHop(seeds, fanouts, keys, ops.Drawing(**drawing), moments))


class PlainHop(NamedTuple):
    """One hop of a graph without types."""

    columns: torch.Tensor
    rows: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    positions: torch.Tensor


def plain_hops(
    graph: ops.Graph,
    seeds: Any,
    fanouts: Sequence[Any],
    keys: Sequence[Any],
    drawing: ops.Drawing = ops.Drawing(),  # noqa: B008 - a named tuple
    moments: ops.SeedTimes | None = None,
    reads: ReadChoice | None = None,
) -> list[PlainHop]:
    """Sample all hops of a graph without types, with numbers as fan-outs; its one type always has edges here."""
    counts = [as_tensor("fanouts", [own]) if isinstance(own, int) else own for own in fanouts]
    prepared = ops.PreparedHops(graph, counts, drawing, reads)
    return [plain_hop(hop, graph) for hop in prepared.sample([seeds], keys, moments)]


def plain_hop(hop: ops.SampledHop, graph: ops.Graph) -> PlainHop:
    (columns,), (rows,), edges = hop.columns, hop.rows, hop.edges.get(0)
    if edges is None:
        none = torch.zeros(len(columns) + 1, dtype=graph.indptr_dtype)
        return PlainHop(columns, rows, none, columns[:0], none[:0].long())
    return PlainHop(columns, rows, *edges)


def sample_all(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    method: Method = "uniform",
    **options: Any,
) -> list[PlainHop]:
    """Sample all hops of a graph without types; the options are those of the graph and of the drawing."""
    graph, drawing = parted(options)
    return plain_hops(
        ops.Graph.unchecked(indptr, indices, **graph), seeds, fanouts, keys, ops.Drawing(method, **drawing)
    )


def sample_timed(
    graph: ops.Graph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    method: Method = "uniform",
    window: int | None = None,
    **drawing: Any,
) -> list[PlainHop]:
    """Sample all hops in time, with one window for all seeds."""
    windows = None if window is None else torch.full_like(times, window)
    moments = ops.SeedTimes(times, windows)
    return plain_hops(graph, seeds, fanouts, keys, ops.Drawing(method, **{"rows": "edge", **drawing}), moments)


def sample_typed_timed(
    graph: ops.Graph, times: torch.Tensor, windows: torch.Tensor | None = None, **hops: Any
) -> list[ops.SampledHop]:
    """Sample all hops of a graph with types in time."""
    own = {name: hops.pop(name) for name in ops.Drawing._fields if name in hops}
    moments = ops.SeedTimes(times, windows)
    return ops.sample_hops(graph, **hops, drawing=ops.Drawing(**{"rows": "edge", **own}), moments=moments)


def parted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of a graph, and those of a drawing."""
    own = {"cumulative": options.pop("cumulative", None), "large_columns": options.pop("index", None)}
    return own, options
