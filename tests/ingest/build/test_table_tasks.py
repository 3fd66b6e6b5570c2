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
from graphfeed.ingest.tables.table import TableSource
from tests.clusters import Killing, dask_cluster, ray_cluster


def tables(folder: Path) -> Spec:
    """Write tables of nodes and of two edge types, with everything that depends on rows before, and wrong rows."""
    rng = np.random.default_rng(0)
    names = np.array([f"node {number}" for number in range(30)])
    np.save(folder / "more.npy", rng.random((31, 2)))
    for number in range(3):
        some = names[10 * number : 10 * number + 10].tolist()
        some += ["node 3"] if number == 1 else []  # there was one
        rows: dict[str, Any] = {
            "id": some,
            "v": rng.random((len(some), 3)).tolist(),
            "t": rng.integers(0, 9, len(some)),
        }
        rows["y"] = [None if number else "z", *rng.permutation([f"class {number}", "a"] * 5)][: len(some)]
        rows["part"] = rng.choice(["train", "test", "none"], len(some))
        rows["v"][4] = [1.0, 2.0] if number else None
        pyarrow.parquet.write_table(pa.table(rows), folder / f"nodes-{number}.parquet")
    for number in range(5):
        columns: dict[str, Any] = {"s": names[rng.integers(0, 30, 50)], "d": rng.integers(0, 9, 50)}
        columns |= {"w": rng.random(50) if number % 2 else rng.integers(0, 5, 50)}
        columns |= {"at": np.arange(50) + 45 * number, "y": rng.choice(["a", "b", f"c{number}"], 50)}
        columns["d"][number] = 9
        pyarrow.csv.write_csv(pa.table(columns), folder / f"{number}.csv")
    plain = EdgeTable("*.csv", source="s", destination="d", weight="w", time=0)
    featured = EdgeTable(
        "*.csv", source="d", destination="d", weight="w", features={"w": "w"}, label="y", time="at", time_sorted=True
    )
    node = NodeTable("nodes-*.parquet", id="id", features={"v": ["v", "more.npy"]}, label="y", split="part", time="t")
    return Spec({"n:r:m": plain, "m:s:m": featured}, {"n": node, "m": NodeTable(count=9, time=0)}, folder=folder)


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


@pytest.mark.parametrize("start", [partial(ThreadPoolExecutor, 3), pytest.param(Processes, marks=pytest.mark.thorough)])
def test_every_executor_gives_the_same_bytes(tmp_path: Path, start: Callable[[], Any]) -> None:
    spec = tables(tmp_path)
    expected = build_dataset(spec, tmp_path / "here", on_error="skip")
    with start() as executor:
        found = build_dataset(spec, tmp_path / "out", on_error="skip", executor=executor)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    reasons = " ".join(entry["reason"] for entry in found.yaml_data["skipped"])
    for reason in ("earlier row", "another length than 3", "must be a vector", "y is missing", "earlier", "range"):
        assert reason in reasons
    assert found.yaml_data == expected.yaml_data


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start", [dask_cluster, ray_cluster])
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(
    tmp_path: Path, start: Callable[[], AbstractContextManager[Executor]]
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "here", on_error="skip")
    with start() as cluster:
        executor = Killing(cluster, tmp_path / "killed", at=5)
        build_dataset(spec, tmp_path / "out", on_error="skip", executor=executor)
    assert contents(tmp_path / "out") == contents(tmp_path / "here")
    assert (tmp_path / "killed").exists()


def test_a_wrong_row_is_named(tmp_path: Path) -> None:
    spec = tables(tmp_path)
    with (
        ThreadPoolExecutor(2) as executor,
        pytest.raises(ValueError, match=r"nodes-\d\.parquet, row \d+: (id is 'node 3', which|v is)"),
    ):
        build_dataset(spec, tmp_path / "out", executor=executor)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken_at", "left"),
    [
        pytest.param(
            2, ["nodes-0", "nodes-1", "nodes-2", "nodes-0", "nodes-1", "nodes-2", "0"], marks=pytest.mark.thorough
        ),
        pytest.param(6, ["nodes-0", "nodes-2", "0"], marks=pytest.mark.thorough),
        (9, ["2", "3", "4", "1", "2", "3", "4", "0", "1", "2", "3", "4"]),
    ],
    ids=["ids", "rows of nodes", "edges"],
)
def test_a_run_that_lost_a_worker_goes_on_with_and_without_an_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_at: int, left: list[str]
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "here", on_error="skip")
    with Processes(broken_at) as executor, pytest.raises(BrokenProcessPool) as caught:
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
    assert read[1 : 1 + len(left)] == left, "the first vector is looked up before"
