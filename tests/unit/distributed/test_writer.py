"""Tests of the files written for each part, by tasks in any executor."""

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import assign_nodes, write_partition
from graphfeed.storage.graph import ByType, GraphArrays
from graphfeed.testing import limits
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.refusals import check_refused
from tests.stand_ins.clusters import Killing, dask_cluster, ray_cluster


def test_parts_are_numbered_by_integers_that_are_as_small_as_can_be(tmp_path: Path) -> None:
    root = write_partition(tmp_path / "parts", graphs.plain(), torch.full((100,), 2), 3)
    assert np.load(root / "node_parts.npy").dtype == np.uint8
    assert len(list(root.glob("part_*"))) == 3


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    plain, typed, parts = graphs.plain(), graphs.typed(), torch.zeros(100, dtype=torch.int64)

    def write(domain: str, kind: str | None, rows: int) -> Path:
        store = gf.BasicFeatureStore({(domain, kind, "feat"): gf.TorchBasedFeature(torch.zeros(rows, 1))})
        return write_partition(tmp_path / "parts", plain, parts, 2, store)

    def write_typed(kind: str | None) -> Path:
        store = gf.BasicFeatureStore({("edge", kind, "feat"): gf.TorchBasedFeature(torch.zeros(3, 1))})
        return write_partition(tmp_path / "parts", typed, assign_nodes(typed, 2), 2, store)

    edges = "features of edge type None have 600 rows, but there is an edge 699"
    check_refused(
        [
            (lambda: write("node", None, 99), ValueError, "must have 100 rows, one for each node, but has 99"),
            (lambda: write("edge", None, 600), ValueError, edges),
            (lambda: write("node", "user", 100), ValueError, r"is of node type 'user', but the graph has \[None\]"),
            (lambda: write("edge", "user", 700), ValueError, r"is of edge type 'user', but the graph has \[None\]"),
            (lambda: write_typed("shop"), ValueError, "a feature is of edge type"),
            (lambda: write_typed(None), ValueError, "a feature is of edge type"),
        ]
    )
    assert list(tmp_path.iterdir()) == []


def stored(folder: Path) -> tuple[GraphArrays, ByType, gf.BasicFeatureStore]:
    """Return a graph and features in files, so that an interrupted run can be resumed."""
    graph = graphs.plain(2000, 9000)
    graph.save(folder / "graph")
    store = {}
    for domain, count in (("node", 2000), ("edge", 9000)):
        np.save(folder / f"{domain}.npy", np.arange(2 * count, dtype=np.float32).reshape(count, 2))
        store[domain, None, "feat"] = gf.DiskBasedFeature(folder / f"{domain}.npy")
    mapped = gf.load_graph(folder / "graph")
    assert isinstance(mapped, GraphArrays)
    return mapped, assign_nodes(graph, 3, "hash"), gf.BasicFeatureStore(store)


def content(root: Path) -> dict[str, bytes]:
    """Return the bytes of all files, except the random identity of the partition and the time of its columns."""
    metadata = json.loads((root / "partition.json").read_text())
    identity, stamp = metadata["identity"].encode(), metadata["written"]
    assert (root / "part_1/indices.npy").stat().st_mtime == stamp
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(root)): path.read_bytes().replace(identity, b"").replace(b" %d," % stamp, b"")
        for path in files
    }


class Engine(ProcessPoolExecutor):
    """A process pool whose worker is killed after a given number of tasks was submitted."""

    def __init__(self, kill_at: int = -1) -> None:
        super().__init__(1, mp_context=get_context("spawn"))
        self.left = kill_at

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        if self.left == 0:
            return super().submit(os.kill, super().submit(os.getpid).result(), signal.SIGKILL)
        self.left -= 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize(
    "start", [partial(ThreadPoolExecutor, 3), pytest.param(Engine, marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_every_executor_writes_the_same_bytes_in_whichever_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[], AbstractContextManager[Executor]]
) -> None:
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    assert not [name for name in expected if name.startswith("scratch")]
    with limits(part_values=17, part_bytes=17), start() as executor:
        root = write_partition(tmp_path / "parts", graph, parts, 3, store, executor)
    assert content(root) == expected


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start", [dask_cluster, ray_cluster])
def test_a_cluster_that_loses_a_worker_writes_the_same_bytes(
    tmp_path: Path, start: Callable[[], AbstractContextManager[Executor]]
) -> None:
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    with start() as cluster:
        executor = Killing(cluster, tmp_path / "killed", at=2)
        assert content(write_partition(tmp_path / "parts", graph, parts, 3, store, executor)) == expected
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
def test_a_run_that_lost_a_worker_goes_on_with_the_same_files_only(tmp_path: Path) -> None:
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    with Engine(kill_at=2) as executor, pytest.raises(BrokenProcessPool) as caught:
        write_partition(tmp_path / "parts", graph, parts, 3, store, executor=executor)
    assert "the next run with the same files continues" in "".join(caught.value.__notes__)
    unfinished = tmp_path / ".parts.unfinished"
    done = {name: (unfinished / name).stat().st_ino for name in expected if (unfinished / name).exists()}
    assert [f"part_{part}/indices.npy" in done for part in range(3)] == [True, True, False]
    assert content(write_partition(tmp_path / "parts", graph, parts, 3, store)) == expected
    assert {name: (tmp_path / "parts" / name).stat().st_ino for name in done} == done
    assert not unfinished.exists()


class Stopped(ThreadPoolExecutor):
    """Is interrupted at the last task."""

    left = 4

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().submit(fn, *args, **kwargs)


def test_a_run_with_other_files_begins_anew(tmp_path: Path) -> None:
    graph, parts, store = stored(tmp_path)
    with Stopped(1) as executor, pytest.raises(KeyboardInterrupt):
        write_partition(tmp_path / "parts", graph, parts, 3, store, executor)
    assert (tmp_path / ".parts.unfinished").exists()
    np.save(tmp_path / "node.npy", np.full((2000, 2), 7, dtype=np.float32))
    other = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(tmp_path / "node.npy")})
    root = write_partition(tmp_path / "parts", graph, parts, 3, other)
    assert set(np.load(root / "part_0/feature_0.npy").ravel()) == {7}
    assert not [name for name in content(root) if "feature_1" in name]
