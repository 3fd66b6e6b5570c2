"""Limits change the time and the memory that work takes, never its results."""

import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfeed as gf
from graphfeed.ops.process import Limits, current_limits
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digests

LEAST: dict[str, Any] = {
    "first_edges": 1, "first_table": 1, "bounded_edges": 0, "node_map_bytes": 0, "index_degree": 1, "index_share": 1,
    "checked_edges": 99, "shared_bytes": 1, "sorted_bytes": 0, "part_values": 9, "part_bytes": 99,
    "cache_read_bytes": 1, "rows_per_task": 1, "memory_bytes": 0, "answer_bytes": 1, "arena_bytes": 1, "uva_threads": 1,
    "window_bytes": 1,
}  # fmt: skip
"""The least value of each size. Waits, which raise an error when they are over, are not in it."""


def test_each_size_has_a_least_value() -> None:
    sizes = {field.name for field in fields(Limits) if not field.name.endswith("_seconds")}
    assert sizes - {"waiting_requests"} == LEAST.keys()


MAKERS = (
    pipelines.homogeneous, pipelines.weighted, pipelines.heterogeneous, pipelines.link_prediction,
    pipelines.layer_sampled, pipelines.layer_sampled_by_type, pipelines.typed_negatives, pipelines.in_subgraphs,
    pipelines.temporal_by_type, pipelines.temporal_layer_sampled,
)  # fmt: skip


@pytest.mark.slow
def test_pipelines_give_the_same_mini_batches_with_every_size_at_its_least() -> None:
    for make in MAKERS:
        expected = digests(make().with_seed(3))
        with limits(**LEAST):
            assert digests(make().with_seed(3)) == expected, make.__name__


def from_files(folder: Path) -> gf.Datapipe:
    """Return a pipeline whose graph and features are on a disk."""
    graph = gf.load_graph(folder / "graph")
    feature = gf.cpu_cached_feature(gf.DiskBasedFeature(folder / "rows.npy"), 3000)
    store = gf.BasicFeatureStore({("node", None, "x"): feature})
    items = gf.ItemSampler(gf.ItemSet(pipelines.NUM_NODES, names="seeds"), batch_size=32, shuffle=True)
    return items.sample_neighbor(graph, [3, 2]).fetch_feature(store, node_feature_keys=["x"])


def save_files(folder: Path) -> None:
    edges = pipelines.random_edges(pipelines.NUM_NODES, pipelines.NUM_NODES, pipelines.NUM_EDGES, 0)
    gf.from_coo(edges, pipelines.NUM_NODES).save(folder / "graph")
    np.save(folder / "rows.npy", np.arange(pipelines.NUM_NODES * 5.0).reshape(-1, 5))


OPTIONS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 2, "window": 3, "memory_limit": 10_000},
    {"num_workers": 1, "worker": "process"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_on_a_disk_is_written_and_read_the_same_in_the_least_parts(tmp_path: Path, options: Any) -> None:
    save_files(tmp_path)
    with gf.DataLoader(from_files(tmp_path), **options, seed=3) as loader:
        expected = digests(loader)
    (tmp_path / "least").mkdir()
    with limits(**LEAST):
        save_files(tmp_path / "least")
        with gf.DataLoader(from_files(tmp_path / "least"), **options, seed=3) as loader:
            assert digests(loader) == expected


def test_a_block_changes_limits_in_all_threads_and_restores_them() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(current_limits().first_edges))
    with limits(first_edges=7), limits(first_table=5):
        thread.start()
        thread.join()
        assert (found, current_limits().first_table) == ([7], 5)
    assert current_limits() == Limits()
    with pytest.raises(TypeError, match="first_edge"), limits(first_edge=7):
        pass
