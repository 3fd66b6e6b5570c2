"""Calls of the operations on hops, by what a test says of a graph and of its draws."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.sampling.hops.hop_recipe import Method


def sample_one(
    graph: ops.StaticGraph | ops.TemporalGraph,
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


def sample_all(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    method: Method = "uniform",
    **options: Any,
) -> list[ops.SampledHop]:
    """Sample all hops of a graph without types; the options are those of the graph and of the drawing."""
    graph, drawing = parted(options)
    return ops.sample_hops(ops.HopGraph(indptr, indices, **graph), seeds, fanouts, keys, ops.Drawing(method, **drawing))


def sample_timed(
    columns: ops.TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    method: Method = "uniform",
    window: int | None = None,
    **drawing: Any,
) -> list[ops.SampledHop]:
    """Sample all hops in time, with one window for all seeds."""
    graph = ops.HopGraph(columns.indptr, columns.indices, timed=(columns, columns))
    windows = None if window is None else torch.full_like(times, window)
    moments = ops.SeedTimes(times, windows)
    return ops.sample_hops(graph, seeds, fanouts, keys, ops.Drawing(method, **{"rows": "edge", **drawing}), moments)


def sample_typed_timed(
    graph: ops.HopGraph,
    timed: Sequence[ops.TemporalGraph],
    times: torch.Tensor,
    windows: torch.Tensor | None = None,
    **hops: Any,
) -> list[ops.TypedHop]:
    """Sample all hops of a graph with types in time."""
    own = {name: hops.pop(name) for name in ops.Drawing._fields if name in hops}
    graph, moments = graph._replace(timed=timed), ops.SeedTimes(times, windows)
    return ops.typed_sample_hops(graph, **hops, drawing=ops.Drawing(**{"rows": "edge", **own}), moments=moments)


def parted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of a graph, and those of a drawing."""
    own = {"cumulative": options.pop("cumulative", None), "large_columns": options.pop("index", None)}
    return own, options
