"""Tests of the files written for each part, by tasks in any executor."""

import os
import signal
import tracemalloc
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
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.distributed.partition import writer as partition_writer
from graphfeed.distributed.partition.part_layout import read_metadata
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.storage.graph import ByType, GraphArrays
from graphfeed.storage.graph.assign import assign_nodes
from tests.clusters import Killing, dask_cluster, ray_cluster
from tests.distributed import graphs
from tests.forked import in_child
from tests.refusals import check_refused


def test_parts_are_numbered_by_integers_that_are_as_small_as_can_be(tmp_path: Path) -> None:
    root = write_partition(tmp_path / "parts", graphs.plain(), torch.full((100,), 2), 3)
    assert np.load(root / "node_parts.npy").dtype == np.uint8
    assert len(read_metadata(root).parts) == 3
    for most, dtype in ((255, torch.uint8), (256, torch.int16), (32767, torch.int16), (32768, torch.int32)):
        assert smallest_dtype(most + 1) == dtype
        assert torch.tensor(most, dtype=dtype) == most


def test_a_folder_with_something_in_it_is_refused_before_the_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("keep")
    monkeypatch.setattr(partition_writer, "PartitionWriter", None)
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        write_partition(tmp_path, graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


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


def test_a_killed_writer_leaves_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        write_partition(tmp_path / "parts", graphs.plain(), torch.zeros(100, dtype=torch.int64), 2)

    with monkeypatch.context() as patch:
        patch.setattr(partition_writer.PartitionWriter, "finish", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert in_child(write) == "ended with -9"
    assert not (tmp_path / "parts").exists()
    write()


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
    """Return the bytes of all files, except the random identity of the partition."""
    identity = read_metadata(root).identity.encode()
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes().replace(identity, b"") for path in files}


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
    monkeypatch.setattr(partition_writer, "new_stamp", lambda: 1000)
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    assert not [name for name in expected if name.startswith("scratch")]
    monkeypatch.setattr(partition_columns, "PIECE", 17)
    monkeypatch.setattr(partition_writer, "PART_BYTES", 17)
    monkeypatch.setattr(partition_writer, "BLOCK_NODES", 7)
    with start() as executor:
        root = write_partition(tmp_path / "parts", graph, parts, 3, store, executor)
    assert content(root) == expected
    assert (root / "part_1/indices.npy").stat().st_mtime == 1000


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start", [dask_cluster, ray_cluster])
def test_a_cluster_that_loses_a_worker_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[], AbstractContextManager[Executor]]
) -> None:
    monkeypatch.setattr(partition_writer, "new_stamp", lambda: 1000)
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    with start() as cluster:
        executor = Killing(cluster, tmp_path / "killed", at=2)
        assert content(write_partition(tmp_path / "parts", graph, parts, 3, store, executor)) == expected
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
def test_a_run_that_lost_a_worker_goes_on_with_the_same_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "new_stamp", lambda: 1000)
    graph, parts, store = stored(tmp_path)
    expected = content(write_partition(tmp_path / "here", graph, parts, 3, store))
    with Engine(kill_at=2) as executor, pytest.raises(BrokenProcessPool) as caught:
        write_partition(tmp_path / "parts", graph, parts, 3, store, executor=executor)
    assert "the next run with the same files continues" in "".join(caught.value.__notes__)
    unfinished = tmp_path / ".parts.unfinished"
    assert [(unfinished / f"part_{part}/indices.npy").exists() for part in range(3)] == [True, True, False]
    done: list[int] = []
    write_edges = partition_writer.write_part_edges

    def record(graph: GraphArrays, node_parts: Path, part: int, stamp: int, folder: Path) -> Any:
        done.append(part)
        return write_edges(graph, node_parts, part, stamp, folder)

    with monkeypatch.context() as patch:
        patch.setattr(partition_writer, "new_stamp", lambda: 2000)
        patch.setattr(partition_writer, "write_part_edges", record)
        assert content(write_partition(tmp_path / "parts", graph, parts, 3, store)) == expected
    assert done == [2]
    assert not unfinished.exists()


def test_the_key_of_a_graph_in_files_is_told_without_reading_its_edges(tmp_path: Path) -> None:
    graphs.plain(2000, 300_000).save(tmp_path / "graph")
    graph: Any = gf.load_graph(tmp_path / "graph")
    tracemalloc.start()
    try:
        assert partition_writer.partition_key(graph, torch.zeros(2000), 3, {}) is not None
        assert tracemalloc.get_traced_memory()[1] < 4 * graph.indices.nbytes
    finally:
        tracemalloc.stop()


def test_a_run_with_other_files_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, parts, store = stored(tmp_path)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(partition_writer.PartitionWriter, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            write_partition(tmp_path / "parts", graph, parts, 3, store)
    assert (tmp_path / ".parts.unfinished").exists()
    np.save(tmp_path / "node.npy", np.full((2000, 2), 7, dtype=np.float32))
    other = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(tmp_path / "node.npy")})
    root = write_partition(tmp_path / "parts", graph, parts, 3, other)
    assert set(np.load(root / "part_0/feature_0.npy").ravel()) == {7}
    assert not [name for name in content(root) if "feature_1" in name]
