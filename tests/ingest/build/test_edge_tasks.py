"""Tables that tasks read, on executors: the data set is that of one process."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build.edge_tasks import num_ranges, split_tables
from graphfeed.ingest.tables.table import TableSource
from tests.clusters import Killing, dask_cluster, ray_cluster


def tables(folder: Path) -> Spec:
    """Write tables of two edge types, of which one keeps the numbers of edges, with a wrong row in each."""
    rng = np.random.default_rng(0)
    names = np.array([f"node {number}" for number in range(30)])
    pyarrow.parquet.write_table(pa.table({"id": names}), folder / "nodes.parquet")
    for number in range(5):
        columns: dict[str, Any] = {"s": names[rng.integers(0, 30, 50)], "d": rng.integers(0, 9, 50)}
        columns |= {"w": rng.random(50) if number % 2 else rng.integers(0, 5, 50)}
        columns["d"][number] = 9
        pyarrow.csv.write_csv(pa.table(columns), folder / f"{number}.csv")
    plain = EdgeTable("*.csv", source="s", destination="d", weight="w")
    featured = EdgeTable("1.csv", source="d", destination="d", weight="w", features={"w": "w"})
    nodes = {"n": NodeTable("nodes.parquet", id="id"), "m": NodeTable(count=9)}
    return Spec({"n:r:m": plain, "m:s:m": featured}, nodes, folder=folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.storage.datasets.processed_graph.new_stamp", lambda: 1000)


class Processes(ProcessPoolExecutor):
    """A pool of one process, which is killed when so many calls were done."""

    def __init__(self, broken_at: int = -1) -> None:
        super().__init__(1, mp_context=get_context("spawn"))
        self.left = broken_at
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.left -= 1
        if self.left == -1:
            wait(self.futures)
            fn, args = os.kill, (super().submit(os.getpid).result(), signal.SIGKILL)
        self.futures.append(super().submit(fn, *args, **kwargs))
        return self.futures[-1]


@pytest.mark.parametrize("start", [partial(ThreadPoolExecutor, 3), pytest.param(Processes, marks=pytest.mark.slow)])
def test_every_executor_gives_the_same_bytes(tmp_path: Path, start: Callable[[], Any]) -> None:
    spec = tables(tmp_path)
    expected = build_dataset(spec, tmp_path / "here", on_error="skip")
    with start() as executor:
        found = build_dataset(spec, tmp_path / "out", on_error="skip", executor=executor)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert [entry["rows"] for entry in found.yaml_data["skipped"]] == [1, 1, 1, 1, 1, 1]
    assert found.yaml_data == expected.yaml_data


@pytest.mark.slow
@pytest.mark.parametrize("start", [dask_cluster, ray_cluster])
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(
    tmp_path: Path, start: Callable[[], AbstractContextManager[Executor]]
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "here", on_error="skip")
    with start() as cluster:
        executor = Killing(cluster, tmp_path / "killed", at=2)
        build_dataset(spec, tmp_path / "out", on_error="skip", executor=executor)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert (tmp_path / "killed").exists()


def test_a_wrong_row_is_named(tmp_path: Path) -> None:
    spec = tables(tmp_path)
    with (
        ThreadPoolExecutor(2) as executor,
        pytest.raises(ValueError, match=r"\d\.csv, row \d: d is '9', which is out of"),
    ):
        build_dataset(spec, tmp_path / "out", executor=executor)


@pytest.mark.slow
def test_a_run_that_lost_a_worker_goes_on_with_and_without_an_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "here", on_error="skip")
    with Processes(broken_at=3) as executor, pytest.raises(BrokenProcessPool) as caught:
        build_dataset(spec, tmp_path / "out", on_error="skip", executor=executor)
    assert "the next run with the same files goes on" in "".join(caught.value.__notes__)
    read: list[str] = []
    batches = TableSource.batches

    def record(source: TableSource, *given: Any) -> Any:
        read.append(Path(source.name).stem)
        return batches(source, *given)

    monkeypatch.setattr(TableSource, "batches", record)
    build_dataset(spec, tmp_path / "out", on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert read == ["3", "4"]


def test_tables_are_read_apart_unless_one_depends_on_another() -> None:
    sources = [TableSource(pa.table({"s": np.zeros(1000), "d": np.zeros(1000)}), "x")] * 130
    with ThreadPoolExecutor(1) as executor:
        bounds = split_tables(EdgeTable("x"), sources, executor)
        assert (bounds[:3], bounds[-1], len(bounds)) == ([0, 2, 4], 130, 65)
        for dependent in ({"time": "t", "time_sorted": True}, {"features": {"f": "f"}}, {"label": "y"}):
            assert split_tables(EdgeTable("x", **dependent), sources, executor) == [0, 130]
        assert split_tables(EdgeTable("x"), sources, None) == [0, 130]
        assert [num_ranges(sources, 1 << 40, given) for given in (None, executor)] == [1, 16]
    assert num_ranges(sources, 130_000 * 32 // 5, None) == 5
