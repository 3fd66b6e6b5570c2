"""Invalid rows of edges, and edges that exceed the memory limit and are sorted in ranges."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.testing import limits
from tests.stand_ins.clusters import dask_cluster, ray_cluster
from tests.stand_ins.interrupted import stop_before
from tests.stand_ins.scripts import run


def build(folder: Path, lines: str, on_error: Any = "raise", **options: Any) -> Any:
    (folder / "edges.csv").write_text(lines)
    edges = EdgeTable("edges.csv", source="s", destination="d", **options)
    nodes = NodeTable({"id": np.array(["a", "b", "c"])}, id="id") if "b" in lines else NodeTable(count=3)
    return build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=folder), on_error=on_error)


def test_a_wrong_row_is_named_or_left_out(tmp_path: Path) -> None:
    cases: list[Any] = [
        ("s,d\n0,1\n0,3\n", {}, r"row 1: d is '3', which is out of range: there are 3 nodes, numbered from 0"),
        ("s,d\n0,1\n-1,0\n", {}, r"row 1: s is '-1', which is out of range"),
        ("s,d\na,b\na,x\n", {}, r"row 1: d is 'x', but no row of the nodes has that id"),
        ("s,d\na,b\na,\n", {}, r"row 1: d is 'missing', but must be an id"),
        ("s,d,t\n0,1,5\n0,1,4\n", {"time": "t", "time_sorted": True}, r"row 1: t is '4', which is earlier"),
        ("s,d,w\n0,1,5\n0,1,-4\n", {"weight": "w"}, r"row 1: w is '-4', but a weight must be a finite"),
        ("s,d,w\n0,1,5\n0,1,nan\n", {"weight": "w"}, r"row 1: w is 'nan', but a weight must be"),
        ("s,d,x\n0,1,5\n0,1,nan\n", {"features": {"x": "x"}}, r"row 1: x is 'nan', which has NaN"),
    ]
    for lines, options, message in cases:
        with pytest.raises(ValueError, match=rf"edges\.csv, {message}"):
            build(tmp_path, lines, **options)
        dataset = build(tmp_path, lines, "skip", **options)
        assert dataset.graph.total_num_edges == 1
        (entry,) = dataset.yaml_data["skipped"]
        assert entry["rows"] == 1
        assert entry["first"].startswith("row 1: ")


def test_times_that_go_back_over_tables_are_noticed(tmp_path: Path) -> None:
    for times in [[[7, 8], [1, 2], [3, 9]], [[], [2, 1], [1, 1]]]:
        tables = [{"s": np.zeros(len(t), int), "d": np.zeros(len(t), int), "t": np.array(t, int)} for t in times]
        edges = EdgeTable(tables, source="s", destination="d", time="t", time_sorted=True)
        spec = Spec({"n:r:n": edges}, {"n": NodeTable(count=1)})
        with pytest.raises(ValueError, match=r"frame [12], row \d: t is \d, which is earlier than in a preceding row"):
            build_dataset(spec)
        flat = np.concatenate(times)
        expected = flat[flat >= np.maximum.accumulate(flat)].tolist()
        dataset = build_dataset(spec, on_error="skip")
        assert dataset.graph.edge_attributes["time"].tolist() == expected
        assert sum(entry["rows"] for entry in dataset.yaml_data["skipped"]) == len(flat) - len(expected)


def tables(folder: Path, edges: int = 4000) -> Spec:
    rng = np.random.default_rng(2)
    for number in range(2):
        ends: dict[str, Any] = {
            "s": rng.integers(0, 90, edges),
            "d": rng.integers(0, 60, edges),
            "t": rng.integers(0, 9, edges),
        }
        np.savez(folder / f"{number}.npz", **ends)
    files = ["0.npz", "1.npz"]
    return Spec(
        {
            "a:r:b": EdgeTable(files, source="s", destination="d", time="t", features={"t": "t"}),
            "a:q:a": EdgeTable("0.npz", source="s", destination="d", time=3),
        },
        {"a": NodeTable(count=90), "b": NodeTable(count=60)},
        folder=folder,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files, but for the time at which they were written."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
    return {name: re.sub(rb"written: \d+", b"", own) for name, own in files.items()}


@pytest.fixture
def small_parts() -> Iterator[None]:
    """Allow little memory, so that edges are split, read and sorted in many parts."""
    with limits(part_bytes=1000, part_values=64):
        yield


EXECUTORS = [
    partial(ThreadPoolExecutor, 3),
    pytest.param(partial(ProcessPoolExecutor, 2, get_context("spawn")), marks=pytest.mark.thorough),
    pytest.param(dask_cluster, marks=[pytest.mark.slow, pytest.mark.thorough]),
    pytest.param(ray_cluster, marks=[pytest.mark.slow, pytest.mark.thorough]),
]


@pytest.mark.parametrize("start", EXECUTORS)
def test_ranges_and_executors_do_not_change_the_bytes(tmp_path: Path, small_parts: None, start: Any) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    build_dataset(spec, tmp_path / "ranges", memory=20_000)
    with start() as executor:
        build_dataset(spec, tmp_path / "executor", executor=executor)
    assert contents(tmp_path / "whole") == contents(tmp_path / "ranges") == contents(tmp_path / "executor")


class Failing(ThreadPoolExecutor):
    """Runs seven tasks, and is broken afterwards."""

    def __init__(self) -> None:
        super().__init__(1)
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        if len(self.futures) == 7:
            wait(self.futures)
            raise BrokenExecutor("a worker ended abruptly")
        self.futures.append(super().submit(fn, *args, **kwargs))
        return self.futures[-1]


def test_a_run_that_lost_its_executor_goes_on_within_the_sorting(tmp_path: Path, small_parts: None) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    with Failing() as executor, pytest.raises(BrokenExecutor) as caught:
        build_dataset(spec, tmp_path / "parts", executor=executor)
    assert "the next run with the same files continues" in "".join(caught.value.__notes__)
    with ThreadPoolExecutor(1) as threads:
        build_dataset(spec, tmp_path / "parts", executor=threads)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_a_run_that_is_interrupted_after_any_step_goes_on(tmp_path: Path, small_parts: None) -> None:
    spec = tables(tmp_path, edges=400)
    build_dataset(spec, tmp_path / "whole")
    for step in ("node_1", "edge_0", "edge_1", "sort"):
        stop_before(spec, tmp_path / step, step)
        assert not (tmp_path / step).exists()
        build_dataset(spec, tmp_path / step, memory=20_000)
        assert contents(tmp_path / "whole") == contents(tmp_path / step)


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    stop_before(tables(tmp_path), tmp_path / "out", "sort")
    spec = tables(tmp_path, edges=100)
    build_dataset(spec, tmp_path / "out")
    build_dataset(spec, tmp_path / "again")
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


PEAK = """
import sys
from pathlib import Path
import numpy as np
import pyarrow.parquet
from graphfeed.ingest import build_dataset, EdgeTable, NodeTable, Spec
folder, edges = Path(sys.argv[1]), EdgeTable("big.parquet", source="s", destination="d", time="t")
build_dataset(Spec({"e": EdgeTable({"s": np.zeros(9, int), "d": np.zeros(9, int), "t": np.zeros(9, int)}, source="s",
    destination="d", time="t")}))

def peak():
    # Unlike what getrusage has, this starts again with each program.
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

before = peak()
build_dataset(Spec({"e": edges}, {"n": NodeTable(count=100_000)}, folder=folder), folder / "out", memory=1 << 25)
print((peak() - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_peak_memory_stays_near_the_budget_and_below_the_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = {name: rng.integers(0, 100_000, 20_000_000) for name in ("s", "d", "t")}
    pyarrow.parquet.write_table(pa.table(ends), tmp_path / "big.parquet", row_group_size=1 << 18)
    done = run("-c", PEAK, str(tmp_path))
    assert done.returncode == 0, done.stderr
    # The limit of 32 MiB, and 200 MB for the engine; the columns have 480 MB.
    assert 1 << 24 < int(done.stdout) < 230_000_000
