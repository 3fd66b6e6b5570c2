"""Edges that are larger than the memory given are sorted part by part, and a run that is killed goes on."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import graphfeed as gf
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build import scratch_edges
from graphfeed.ingest.build.journal import Journal
from graphfeed.ingest.build.scratch_edges import num_ranges, rows_at_a_time
from graphfeed.ingest.tables.table import TableSource
from graphfeed.storage.datasets import edge_sorting
from tests.ingest.interrupted import Stopped, stop_before
from tests.on_disk import listing
from tests.scripts import run


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
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


@pytest.fixture(autouse=True)
def same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfeed.storage.datasets.processed_graph.new_stamp", lambda: 1000)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give so little memory that edges are split, read and sorted in many parts."""
    monkeypatch.setattr("graphfeed.ingest.build.dataset_builder.LEAST_MEMORY", 1)
    monkeypatch.setattr(scratch_edges, "LEAST_ROWS", 64)


def test_ranges_do_not_change_the_bytes(tmp_path: Path, small_parts: None) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    build_dataset(spec, tmp_path / "parts", memory=20_000)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_executors_do_not_change_the_bytes(tmp_path: Path, small_parts: None) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    with ThreadPoolExecutor(3) as executor:
        build_dataset(spec, tmp_path / "parts", executor=executor)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


class Failing(ThreadPoolExecutor):
    """Does the five tasks that read, and seven that sort, and is broken then."""

    def __init__(self) -> None:
        super().__init__(1)
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        if len(self.futures) == 12:
            wait(self.futures)
            raise BrokenExecutor("a worker ended abruptly")
        self.futures.append(super().submit(fn, *args, **kwargs))
        return self.futures[-1]


def test_a_run_that_lost_its_executor_goes_on_within_the_sorting(
    tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    with Failing() as executor, pytest.raises(BrokenExecutor) as caught:
        build_dataset(spec, tmp_path / "parts", executor=executor)
    assert "the next run with the same files goes on" in "".join(caught.value.__notes__)
    done = listing(tmp_path / ".parts.unfinished/graphfeed/graph/scratch")
    sorted_ranges: list[int] = []
    sort_range = edge_sorting.sort_range

    def record(edges: Any, indptr: Any, arrays: Any, first: int) -> Any:
        sorted_ranges.append(first)
        return sort_range(edges, indptr, arrays, first)

    monkeypatch.setattr(edge_sorting, "sort_range", record)
    with ThreadPoolExecutor(1) as threads:
        build_dataset(spec, tmp_path / "parts", executor=threads)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    assert done
    assert not {int(name.partition("_")[0]) for name in done} & {*sorted_ranges}


@pytest.mark.parametrize("step", range(1, 11))
def test_a_run_that_is_interrupted_after_any_step_goes_on(
    tmp_path: Path, small_parts: None, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tables(tmp_path)
    build_dataset(spec, tmp_path / "whole")
    noted: list[str] = []
    note = Journal.note

    def interrupt(journal: Journal, name: str, key: str, **state: Any) -> None:
        note(journal, name, key, **state)
        noted.append(name)
        if len(noted) == step:
            raise Stopped

    monkeypatch.setattr(Journal, "note", interrupt)
    with pytest.raises(Stopped):
        build_dataset(spec, tmp_path / "out", memory=20_000)
    assert listing(tmp_path) == [".out.unfinished", "0.npz", "1.npz", "whole"]
    build_dataset(spec, tmp_path / "out", memory=20_000)
    assert contents(tmp_path / "whole") == contents(tmp_path / "out")
    # The steps that were done are not done again.
    steps = ["node_0", "node_1", "edge_0", "edge_1", "sort"]
    assert noted == [name for step in steps for name in (f"{step} so far", step)]


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    stop_before(tables(tmp_path), tmp_path / "out", "sort")
    spec = tables(tmp_path, edges=100)
    build_dataset(spec, tmp_path / "out")
    build_dataset(spec, tmp_path / "anew")
    assert contents(tmp_path / "out") == contents(tmp_path / "anew")


def test_there_are_as_many_ranges_as_memory_and_executors_ask_for() -> None:
    sources = [TableSource(pa.table({"s": np.zeros(1000)}), "x")] * 130
    with ThreadPoolExecutor(1) as executor:
        assert [num_ranges(sources, 1 << 40, given) for given in (None, executor)] == [1, 16]
    assert num_ranges(sources, 130_000 * 32 // 5, None) == 5
    assert num_ranges(sources, 1, None) == 256


def test_no_more_is_read_at_a_time_than_a_quarter_of_the_memory() -> None:
    assert rows_at_a_time(1 << 40) == 1 << 20
    assert rows_at_a_time(1 << 24) == (1 << 22) // 128
    assert rows_at_a_time(1) == 1 << 12


KILLED = """
import sys, threading, time, os, signal
from pathlib import Path
from graphfeed.ingest import build_dataset, EdgeTable, Spec
folder = Path(sys.argv[1])
if sys.argv[2] != "0":
    threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
build_dataset(Spec({"e": EdgeTable("big.npz", source="s", destination="d")}, folder=folder), folder / "out",
    memory=1 << 24)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "big.npz", s=rng.integers(0, 100_000, 2_000_000), d=rng.integers(0, 100_000, 2_000_000))
    killed = 0
    for seconds in (0.3, 0.6, 0.9, 0):
        done = run("-c", KILLED, str(tmp_path), str(seconds))
        if done.returncode == 0 or listing(tmp_path) == ["big.npz", "out"]:  # it may be killed when all is done
            break
        killed += 1
        assert done.returncode == -9, done.stderr
        assert set(listing(tmp_path)) <= {"big.npz", ".out.unfinished"}
    assert killed
    assert listing(tmp_path) == ["big.npz", "out"]
    gf.OnDiskDataset(tmp_path / "out").load()


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
    # Unlike what getrusage has, this begins anew with each program.
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

before = peak()
build_dataset(Spec({"e": edges}, {"n": NodeTable(count=100_000)}, folder=folder), folder / "out", memory=1 << 25)
print((peak() - before) * 1024)
"""


@pytest.mark.slow
def test_peak_memory_stays_near_the_budget_and_below_the_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = {name: rng.integers(0, 100_000, 6_000_000) for name in ("s", "d", "t")}
    pyarrow.parquet.write_table(pa.table(ends), tmp_path / "big.parquet", row_group_size=1 << 18)
    done = run("-c", PEAK, str(tmp_path))
    assert done.returncode == 0, done.stderr
    # The budget of 32 MiB, and what pyarrow and NumPy hold beside it; the columns alone have 144 MB.
    assert 1 << 24 < int(done.stdout) < 120_000_000
