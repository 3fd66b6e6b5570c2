"""What each rank runs to compare mini-batches of a graph in parts with those of the whole graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedFeature, PartitionedGraph, cut_graph, cut_rows
from graphfeed.distributed.peers import find_place
from tests import golden_pipelines
from tests.digests import assert_same
from tests.golden_pipelines import numbers


def assign(num_ids: int, how: str, salt: int = 90) -> PartBook:
    """Return which rank owns each id.

    Args:
        num_ids: The number of ids.
        how: "range": ranks own ranges. "random": they own any ids. "empty": the same, but the last rank owns none.
        salt: Another number gives other random parts.
    """
    world_size = find_place()[1]
    if how == "range":
        return PartBook.from_bounds([part * num_ids // world_size for part in range(world_size + 1)])
    owning = max(1, world_size - (how == "empty"))
    return PartBook.from_assignment(numbers(num_ids, owning, salt), world_size)


def in_parts(graph: gf.FusedCSCSamplingGraph, how: str) -> PartitionedGraph:
    """Return a graph of which this rank has a part."""
    return PartitionedGraph(cut_graph(graph, assign(graph.total_num_nodes, how), find_place()[0]))


def feature_in_parts(values: torch.Tensor, how: str, salt: int = 90) -> PartitionedFeature:
    """Return a feature of which this rank has a part."""
    book = assign(len(values), how, salt)
    return PartitionedFeature(cut_rows(values, book, find_place()[0]), book)


@contextmanager
def graphs_in_parts(how: str) -> Iterator[None]:
    """Let the golden pipelines read graphs and features in parts."""
    whole, whole_typed, whole_features = (
        golden_pipelines.untyped,
        golden_pipelines.typed,
        golden_pipelines.features,
    )

    @cache
    def untyped(dtype: torch.dtype = torch.int64) -> PartitionedGraph:
        return in_parts(whole(dtype), how)

    @cache
    def typed() -> PartitionedGraph:
        return in_parts(whole_typed(), how)

    @cache
    def features() -> gf.BasicFeatureStore:
        parts: Any = {
            key: feature_in_parts(whole_features()[key].read(), how, salt)
            for salt, key in enumerate([("node", None, "x"), ("edge", None, "e")], start=90)
        }
        return gf.BasicFeatureStore(parts)

    with pytest.MonkeyPatch.context() as patch:
        for function in (untyped, typed, features):
            patch.setattr(golden_pipelines, function.__name__, function)
        yield


def compare(hows: list[str], names: list[str], num_workers: int = 0) -> dict[str, int]:
    """Compare pipelines, each rank with draws of its own; return how many mini-batches were equal."""
    seed, equal = find_place()[0], dict.fromkeys(names, 0)
    for how in hows:
        with graphs_in_parts(how):
            own = {name: gf.DataLoader(golden_pipelines.ALL[name](), num_workers, seed=seed) for name in names}
        for name in names:
            expected = gf.DataLoader(golden_pipelines.ALL[name](), 0, seed=seed)
            for found, wanted in zip(own[name], expected, strict=True):
                assert_same(found, wanted)
                equal[name] += 1
            own[name].close()
    return equal
