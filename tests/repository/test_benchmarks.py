"""The parts of the benchmarks are correct, and every command runs."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import cuda, gpu_cache, graphs, plain, predicted, real, worker_start
from benchmarks.__main__ import REPORTS, main
from benchmarks.record import HISTORY, others_seconds, shortcomings
from benchmarks.scale import quick
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times
from tests.stand_ins.compiled_kernels import COMPILER
from tests.stand_ins.counted_cuda import counting
from tests.stand_ins.emulated_cuda import EmulatedCuda
from tests.stand_ins.late_streams import late_streams

ROOT = Path(__file__).resolve().parents[2]
SHAPE = graphs.Shape("small", 1_000, 20_000, 3)


@pytest.fixture(scope="module")
def edges() -> tuple[graphs.Ints, graphs.Ints]:
    return graphs.make_edges(SHAPE)


def test_a_graph_has_its_shape_and_both_directions(edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    indptr, indices = edges
    columns = np.repeat(np.arange(SHAPE.num_nodes), np.diff(indptr))
    assert (indptr[0], indptr[-1], len(indices)) == (0, SHAPE.num_edges, SHAPE.num_edges)
    assert indices.min() >= 0
    assert indices.max() < SHAPE.num_nodes
    there = np.sort(columns * SHAPE.num_nodes + indices)
    back = np.sort(indices * SHAPE.num_nodes + columns)
    assert np.array_equal(there, back)


def test_a_graph_is_a_function_of_its_shape_with_hubs_that_are_spread(edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    degrees = np.diff(edges[0])
    assert degrees.max() > 10 * degrees.mean()
    assert 0.3 < degrees[: SHAPE.num_nodes // 2].sum() / SHAPE.num_edges < 0.7
    assert np.array_equal(edges[1], graphs.make_edges(SHAPE)[1])
    assert not np.array_equal(edges[1], graphs.make_edges(replace(SHAPE, seed=1))[1])


def test_plain_sampling_finds_real_edges(edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    indptr, indices = edges
    degrees, seeds = np.diff(indptr), np.arange(0, 1_000, 10)
    for replaced in (False, True):
        first, second = plain.Sampler(indptr, indices, replace=replaced).sample(seeds, [3, 2])
        assert np.array_equal(first.nodes[: len(seeds)], seeds)
        for hop, columns, fanout in ((first, seeds, 3), (second, first.nodes, 2)):
            owners = np.repeat(columns, np.diff(hop.indptr))
            assert np.array_equal(hop.nodes[hop.indices], indices[hop.positions])
            assert ((indptr[owners] <= hop.positions) & (hop.positions < indptr[owners + 1])).all()
            counts = np.where(degrees > 0, fanout, 0) if replaced else np.minimum(degrees, fanout)
            assert np.array_equal(np.diff(hop.indptr), counts[columns])
            assert replaced or len(np.unique(hop.positions)) == len(hop.positions)


def test_numbers_are_written_for_the_site_without_names_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    goals = [None, Goal(1.2, 1.5), Goal(1.2, 1.8, at_least=True)]
    table = render("title", [Row("case", "ms", Times([1.0, 2.0, 9.0]), 1.2, goal) for goal in goals])
    monkeypatch.setitem(REPORTS, "gather", lambda scale: iter(["nothing to measure", table]))
    path = tmp_path / "gather.json"
    main(["gather", "--quick", "--repeats", "2", "--json", str(path), "--cache-dir", str(tmp_path)])
    assert str(table) in capsys.readouterr().out
    record = json.loads(path.read_text())
    check_record(record)
    assert record["command"] == "python -m benchmarks gather --quick --repeats 2"
    numbers = {"median": 2.0, "quartiles": [1.5, 5.5], "samples": 3, "ratio": 1.2}
    assert record["rows"][0] == {"table": "title", "what": "case", "unit": "ms", **numbers, "goal": None}
    assert [row["goal"] for row in record["rows"][1:]] == [
        {"bound": "<= 1.5", "met": True},
        {"bound": ">= 1.8", "met": False},
    ]
    assert str(tmp_path) not in path.read_text()
    (line,) = (tmp_path / HISTORY).read_text().splitlines()
    kept = {"record": "gather", **{key: record[key] for key in ("date", "commit", "machine")}}
    assert json.loads(line) == {**kept, "tables": {"title": {"case": [2.0, "ms", 1.2]}}}


def test_a_record_of_a_busy_machine_or_of_few_samples_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        Row("few", "ms", Times([1.0] * 4)),
        Row("enough", "ms", Times([1.0] * 5)),
        Row("sent", "kB", Times([1.0]), counted=True),
    ]
    monkeypatch.setitem(REPORTS, "gather", lambda scale: iter([render("title", rows)]))
    monkeypatch.setattr("os.getloadavg", lambda: (0.3, 0.3, 0.3))
    path = tmp_path / "gather.json"
    with pytest.raises(SystemExit):
        main(["gather", "--json", str(path), "--cache-dir", str(tmp_path)])
    assert not path.exists()
    assert "4 samples of 'few' in 'title', fewer than 5" in capsys.readouterr().err
    machine = {"load": 1.6, "others": 0.6}
    assert [line[:23] for line in shortcomings({"machine": machine, "rows": []})] == [
        "the load before the run",
        "other programs used 0.6",
    ]


def test_a_child_that_has_ended_is_none_of_the_other_programs() -> None:
    work = "import os\nwhile os.times().user < 1: pass"  # the system's time isn't counted
    with subprocess.Popen([sys.executable, "-c", work]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # before the system adds its time to ours
        before = others_seconds()
        child.wait()
        assert before - others_seconds() > 0.3


def check_record(record: dict[str, Any]) -> None:
    """Check that a record has the fields that the site reads."""
    assert record.keys() == {"machine", "versions", "command", "date", "commit", "rows"}
    assert record["machine"].keys() == {"processor", "cores", "load", "others", "huge pages"}
    assert {"python", "graphfeed", "torch", "numba"} <= record["versions"].keys()
    assert all(
        row.keys() == {"table", "what", "unit", "median", "quartiles", "samples", "ratio", "goal"}
        for row in record["rows"]
    )


def test_real_graphs_are_those_of_a_folder_and_left_out_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(real.DATA, raising=False)
    assert real.load_arrays("cora") == "cora is left out: GRAPHFEED_DATA does not name a folder with it\n"
    monkeypatch.setenv(real.DATA, str(tmp_path))
    assert real.load_arrays("cora") == "cora is left out: the folder of GRAPHFEED_DATA has no cora/cora.npz\n"
    (tmp_path / "cora").mkdir()
    ends: dict[str, Any] = {"src": [1, 2, 0], "dst": [0, 0, 1], "num_nodes": 3}
    features: dict[str, Any] = {"feat_indptr": [0, 1, 1, 3], "feat_indices": [1, 0, 3], "feat_shape": [3, 4]}
    np.savez(tmp_path / "cora" / "cora.npz", **ends, **features)
    arrays = real.load_arrays("cora")
    assert not isinstance(arrays, str)
    assert [part.tolist() for part in real.csc(arrays)] == [[0, 2, 3, 3], [1, 2, 0]]
    assert real.rows(arrays).tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]


def test_what_the_site_shows_was_measured_in_full_on_an_idle_machine() -> None:
    for path in (ROOT / "docs" / "measured").glob("*.json"):
        record = json.loads(path.read_text())
        check_record(record)
        assert record["rows"], path.stem
        assert re.fullmatch(rf"python -m benchmarks {path.stem}( --(scale|repeats) [\d.]+)*", record["command"])
        assert record["commit"], path.stem
        assert not [*shortcomings(record)], path.stem


def test_the_page_about_performance_has_each_record() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    named = re.findall(r"measured/(\w+)\.md", text)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "docs" / "measured").iterdir())


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is a device, which shows that everything is run."""
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    for module in (cuda, gpu_cache):
        monkeypatch.setattr(module, "DEVICE", torch.device("meta"))
        monkeypatch.setattr(module, "device_clock", time.perf_counter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100 that is pretended")


@pytest.mark.thorough
@pytest.mark.usefixtures("pretended")
def test_a_cache_on_a_gpu_is_measured(tmp_path: Path) -> None:
    shape = graphs.Shape("small", 500, 3_000, 3)
    scale = replace(quick(tmp_path, 1), products=shape, batch_size=4, gathered_rows=100, cached_batches=1)
    with EmulatedCuda().running():
        tables = list(gpu_cache.report(scale))
    assert tables[0] == "gpu_cache: H100 that is pretended\n"
    assert [table.count("behind a cache of 1/8") for table in tables[1:]] == [1]


@pytest.mark.thorough
@pytest.mark.usefixtures("pretended")
def test_ops_on_a_device_are_measured(tmp_path: Path) -> None:
    scale = replace(quick(tmp_path, 1), products=SHAPE, batch_size=8, gathered_rows=1_100, epoch_batches=1)
    with EmulatedCuda().running(), late_streams():
        tables = list(cuda.report(scale))
    assert tables[0] == "cuda: H100 that is pretended\n"
    assert [table.count("ops.") for table in tables[2:5]] == [1, 3, 3]
    assert tables[5].count("M edges/s") == 3
    assert tables[6].count(", expected ") == len(predicted.WORK)
    assert [table.count("loading that the steps hide") for table in tables[7:]] == [1] * 5


@pytest.mark.thorough
@pytest.mark.parametrize("case", [case for case in predicted.WORK if not case.startswith("LABOR")])
def test_what_is_expected_of_a_gpu_is_what_kernels_move(tmp_path: Path, case: str) -> None:
    """A smaller mini-batch moves as many bytes per row or edge, except for those that its blocks share.

    LABOR reads all edges of a column, which are fewer in the small graph.
    """
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    scale = replace(quick(tmp_path, 1), batch_size=64, gathered_rows=8_000)
    indptr, indices = (torch.from_numpy(part) for part in graphs.load_edges(graphs.QUICK, tmp_path))
    arrays = {"indptr": indptr, "indices": indices, "features": torch.zeros(len(indptr) - 1, 100)}
    with EmulatedCuda().running(), counting() as counts:
        run = predicted.cases(arrays, torch.device("meta"), scale)[case]
        counts.clear()
        result: Any = run(0)
    work = predicted.WORK[case]
    gathers = isinstance(result, torch.Tensor)
    share = 8_000 / 135_000 if gathers else sum(len(layer.edges[0].positions) for layer in result) / 289_977
    assert sum(own.device_bytes for own in counts) == pytest.approx(share * work.device_bytes, rel=0.35)
    assert sum(own.bus_bytes for own in counts) == pytest.approx(share * work.bus_bytes, rel=0.35)
    assert sum(own.bus_requests for own in counts) == pytest.approx(share * work.bus_requests, rel=0.35)
    kernels = sum(own.is_kernel for own in counts)
    assert (kernels, len(counts) - kernels) == (work.kernels, work.operators)


@pytest.mark.thorough
def test_a_graph_is_in_memory_once_while_workers_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_start, "WORKERS", (1,))
    rows = worker_start.measure(quick(tmp_path, 1), 25_000_000, "", 1.1)
    *seconds, share = (row.times.median for row in rows)
    assert min(seconds) > 0
    assert 0.95 < share < 1.4


@pytest.mark.gpu
def test_the_gpu_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("cuda", "gpu_cache"):
        main([what, "--quick", "--repeats", "2", "--cache-dir", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "ops.sample_hops" in printed
    assert printed.count("loading that the steps hide") == 5
    assert "rows missed" in printed


@pytest.mark.thorough
@pytest.mark.parametrize(
    "what",
    [
        "sampling",
        "small_calls",
        "gather",
        "ingest",
        "larger_than_memory",
        "loader",
        "first_use",
        "cold",
        "cache",
        "channels",
        "cores",
        "distributed",
        "epoch",
        "memory",
        "peers",
        "pyg",
        "scale",
        "trained_on_disk",
        "typed",
        "walks",
    ],
)
def test_commands_measure_something(what: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    main([what, "--quick", "--repeats", "1", "--cache-dir", str(tmp_path), "--json", str(path)])
    record = json.loads(path.read_text())
    check_record(record)
    medians = [row["median"] for row in record["rows"]]
    assert max(medians) > 0
    assert min(medians) >= 0
