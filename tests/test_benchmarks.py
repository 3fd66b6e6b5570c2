"""The parts of the benchmarks are correct, and every command runs."""

import json
import logging
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import cache, cold, cuda, first_use, gpu_cache, graphs, plain, predicted, worker_start
from benchmarks.__main__ import REPORTS, main
from benchmarks.limits import Copy, RandomReads
from benchmarks.scale import quick
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times, in_turn
from tests.loader.late_streams import late_streams
from tests.ops.compiled_kernels import COMPILER
from tests.ops.counted_cuda import counting
from tests.ops.emulated_cuda import EmulatedCuda
from tests.pages import rows

ROOT = Path(__file__).resolve().parents[1]
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


def test_degrees_are_skewed_and_hubs_are_spread(edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    degrees = np.diff(edges[0])
    assert degrees.max() > 10 * degrees.mean()
    halves = degrees[: SHAPE.num_nodes // 2].sum() / SHAPE.num_edges
    assert 0.3 < halves < 0.7


def test_a_graph_is_a_function_of_its_shape(edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    again = graphs.make_edges(SHAPE)
    other = graphs.make_edges(graphs.Shape("small", 1_000, 20_000, 3, seed=1))
    assert np.array_equal(edges[1], again[1])
    assert not np.array_equal(edges[1], other[1])


def test_an_odd_number_of_edges_is_refused() -> None:
    with pytest.raises(ValueError, match="num_edges is 3"):
        graphs.Shape("odd", 2, 3, 1)


def test_the_cache_gives_back_what_was_made(tmp_path: Path, edges: tuple[graphs.Ints, graphs.Ints]) -> None:
    for _ in range(2):
        indptr, indices = graphs.load_edges(SHAPE, tmp_path)
        assert np.array_equal(indptr, edges[0])
        assert np.array_equal(indices, edges[1])
    assert graphs.load_features(SHAPE, tmp_path).shape == (1_000, 3)
    assert [path.name for path in tmp_path.iterdir()] == [SHAPE.folder]


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(graphs, "_store_features", interrupt)
    with pytest.raises(KeyboardInterrupt):
        graphs.load_edges(SHAPE, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replace", [False, True])
def test_plain_sampling_finds_real_edges(edges: tuple[graphs.Ints, graphs.Ints], replace: bool) -> None:
    indptr, indices = edges
    degrees = np.diff(indptr)
    seeds = np.arange(0, 1_000, 10)
    first, second = plain.Sampler(indptr, indices, replace=replace).sample(seeds, [3, 2])
    assert np.array_equal(first.nodes[: len(seeds)], seeds)
    for hop, columns, fanout in ((first, seeds, 3), (second, first.nodes, 2)):
        owners = np.repeat(columns, np.diff(hop.indptr))
        assert np.array_equal(hop.nodes[hop.indices], indices[hop.positions])
        assert ((indptr[owners] <= hop.positions) & (hop.positions < indptr[owners + 1])).all()
        assert len(np.unique(hop.nodes)) == len(hop.nodes)
        counts = np.where(degrees > 0, fanout, 0) if replace else np.minimum(degrees, fanout)
        assert np.array_equal(np.diff(hop.indptr), counts[columns])
        assert replace or len(np.unique(hop.positions)) == len(hop.positions)


def test_reads_and_copies_touch_what_they_say() -> None:
    reads = RandomReads(np.ones(100, np.int32), seed=1)
    assert reads.run(5_000_000) == 5_000_000
    assert set(reads.indexes) == set(range(100))
    copy = Copy(100)
    copy.run()
    assert (copy.target == copy.source).all()


def test_cases_take_turns() -> None:
    order: list[str] = []
    times = in_turn({"a": lambda _: order.append("a"), "b": lambda _: order.append("b")}, 3)
    assert "".join(order) == "ab" * 5
    assert len(times["a"].values) == 3
    ticks = in_turn({"nap": lambda _: time.sleep(0.01)}, 1, time.perf_counter)
    assert ticks["nap"].median >= 0.01


def test_a_table_says_whether_a_goal_is_met() -> None:
    times = Times([1.0, 2.0, 9.0])
    rows = [Row("good", "ms", times, 1.2, Goal(1.2, 1.5)), Row("bad", "ms", times, 1.2, Goal(1.2, 1.8, at_least=True))]
    good, bad = render("title", rows).splitlines()[2:]
    assert good.split() == ["good", "ms", "2", "1.5", "-", "5.5", "1.20", "<=", "1.5", "met"]
    assert bad.endswith(">= 1.8  not met")


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
    numbers = {"median": 2.0, "quartiles": [1.5, 5.5], "ratio": 1.2}
    assert record["rows"][0] == {"table": "title", "what": "case", "unit": "ms", **numbers, "goal": None}
    assert [row["goal"] for row in record["rows"][1:]] == [
        {"bound": "<= 1.5", "met": True},
        {"bound": ">= 1.8", "met": False},
    ]
    assert str(tmp_path) not in path.read_text()


def check_record(record: dict[str, Any]) -> None:
    """Check that a record has the fields that the site reads."""
    assert record.keys() == {"machine", "versions", "command", "date", "commit", "rows"}
    assert record["machine"].keys() == {"processor", "cores", "load", "huge pages"}
    assert {"python", "graphfeed", "torch", "numba"} <= record["versions"].keys()
    assert all(
        row.keys() == {"table", "what", "unit", "median", "quartiles", "ratio", "goal"} for row in record["rows"]
    )


def test_what_the_site_shows_was_measured_in_full() -> None:
    for path in (ROOT / "docs" / "measured").iterdir():
        record = json.loads(path.read_text())
        check_record(record)
        assert record["rows"], path.stem
        assert re.fullmatch(rf"python -m benchmarks {path.stem}( --(scale|repeats) [\d.]+)*", record["command"])
        assert record["commit"], path.stem


def test_no_number_of_the_page_about_performance_was_typed() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert not re.search(r"\d", text)
    named = re.findall(r"measured/(\w+)\.md", text)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "docs" / "measured").iterdir())


def test_waits_with_kernels_on_disk_and_without_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([(4.0, 0.2), (6.0, 0.2), (9.0, 0.1), (9.0, 0.1)])
    monkeypatch.setattr(cold, "start_twice", lambda _: next(waits))
    rows = cold.waits(replace(quick(tmp_path, 20), compiled_pipelines=2))
    assert [(row.what, row.times.median, row.ratio) for row in rows] == [
        ("uniform, nothing on disk", 5.0, pytest.approx(25.0)),
        ("uniform, kernels on disk", 0.2, 1.0),
        ("weighted, nothing on disk", 9.0, pytest.approx(90.0)),
        ("weighted, kernels on disk", 0.1, 1.0),
    ]


@pytest.mark.parametrize("name", cold.SAMPLED)
def test_each_cold_pipeline_makes_mini_batches(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["-c", *cold.SAMPLED[name]])
    monkeypatch.setattr(logging, "disable", lambda: None)
    exec(first_use.PROGRAM, {})
    assert first_use.Start(*json.loads(capsys.readouterr().out)).waited > 0


def test_ids_of_a_power_law_are_rows_and_come_once() -> None:
    ids = cache.draw_ids(10_000, 5_000, seed=0)
    assert int(ids.min()) >= 0
    assert int(ids.max()) < 10_000
    assert len(set(ids.tolist())) == len(ids) < 4_000
    again = cache.draw_ids(10_000, 5_000, seed=1)
    assert np.isin(ids[:500], again).mean() > 0.4
    assert ids[:500].double().std() > 2_000


@pytest.mark.thorough
def test_a_file_of_rows_is_removed_and_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = quick(tmp_path, 1)
    (table,) = cache.report(scale)
    assert table.count("memory, whole process") == table.count("memory beyond the kernels") == 1
    assert table.count("memory: ") == 10
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1e6))
    (message,) = cache.report(scale)
    assert "the file takes 0.0 GB" in message


def test_without_a_device_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (alone,) = gpu_cache.report(quick(tmp_path, 1))
    message, expected = cuda.report(quick(tmp_path, 1))
    assert "no CUDA device" in alone
    assert "no CUDA device" in message
    assert "no GPU was measured" in expected
    assert expected.count(" / ") == 2 * len(predicted.WORK) + 1


def test_the_page_about_gpus_says_what_is_expected() -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
    assert list(rows(page, "case")) == predicted.expected()


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
        "channels",
        "cores",
        "distributed",
        "epoch",
        "memory",
        "pyg",
        "typed",
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
