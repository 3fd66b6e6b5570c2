"""Recorded times, in threads and on other machines, and results computed from them: medians, counters, the table."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.loader.profile import FIRST_SERVER, Measured, Recorder, Span
from graphfeed.loader.profile.epoch_record import Counters, StageRow, bytes_read, thread_times
from graphfeed.loader.profile.profile import write_table
from graphfeed.loader.profile.summary import StageTime, quantile, summarise
from graphfeed.loader.profile.verdict import Verdict, judge
from tests.loader.profile.records import MS, make_record

MINIBATCHES: list[Any] = [
    gf.MiniBatch(seeds=torch.arange(4), node_features={"x": torch.zeros(4, 2)}),
    gf.MiniBatch(seeds=torch.arange(4), edge_features=[{("a:b:c", "x"): torch.zeros(4, 2)}]),
    {"seeds": torch.arange(4), "x": [torch.zeros(4, 2)]},
    SimpleNamespace(to_dict=lambda: {"seeds": torch.arange(4), "x": torch.zeros(4, 2)}),
]


def test_the_bytes_of_any_mini_batch_are_counted() -> None:
    record = make_record(1)
    for minibatch in [*MINIBATCHES, None, 3, object(), gf.MiniBatch()]:
        record.count_bytes(minibatch)
    assert record.sizes == [32 + 32] * len(MINIBATCHES) + [0] * 4


def test_rows_are_counted_by_the_name_of_the_feature() -> None:
    record = make_record(1)
    record.count_bytes(
        gf.MiniBatch(node_features={("user", "x"): torch.zeros(3, 2)}, edge_features=[{"w": torch.zeros(5)}])
    )
    assert record.rows == {"user/x": [(3, 24)], "w": [(5, 20)]}


def test_counters_are_those_of_the_pipelines_caches_and_the_executors_workers() -> None:
    feature = gf.cpu_cached_feature(gf.TorchBasedFeature(torch.rand(10, 4)), 1 << 20)
    store = gf.BasicFeatureStore({("node", None, "x"): feature})
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2).fetch_feature(store, node_feature_keys=["x"])
    feature.read(torch.tensor([1, 1]))
    counters = Counters.now(pipe, SimpleNamespace(pids=lambda: [os.getpid()], num_replaced=3))
    (counts,) = counters.caches.values()
    assert sum(counts) == 2
    assert counters.num_replaced == 3


def test_a_process_that_is_gone_has_read_nothing_and_runs_nothing(tmp_path: Path) -> None:
    assert bytes_read(2**22 + 1) == 0
    assert thread_times([2**22 + 1]) == {}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system has no times of waiting for a core")
def test_a_thread_that_works_is_seen_to() -> None:
    me, end = threading.get_native_id(), time.thread_time() + 0.05
    before = thread_times([os.getpid()])[me]
    while time.thread_time() < end:
        pass
    after = thread_times([os.getpid()])[me]
    assert after[0] - before[0] > 10 * MS
    assert after[1] >= before[1]


def test_times_are_medians_per_mini_batch() -> None:
    summary = summarise([make_record(100)])
    assert summary.num_minibatches == 93  # without the first mini-batches, when too few were in flight
    assert summary.rate == pytest.approx(200)
    assert summary.waits == pytest.approx(0.8)
    assert summary.step_ms == 1
    assert summary.first_seconds == 0.004
    assert (summary.worker_ms, summary.worker_cpu_ms) == (6, 3)
    assert (summary.queue_ms, summary.transfer_ms) == (0.5, 2)
    assert (summary.in_flight, summary.ready) == (3, 1)
    assert summary.busy == pytest.approx(0.6)  # 200 mini-batches of 6 ms in two workers


def test_stages_share_the_time() -> None:
    first, second = summarise([make_record(100)]).stages
    assert (first.row.name, first.ms, second.row.name, second.ms) == ("ItemSampler", 1, "NeighborSampler", 5)
    assert first.share + second.share == 1
    assert second.cpu == 0.5


def test_a_stage_that_is_called_twice_for_a_mini_batch_takes_twice_as_long() -> None:
    record = make_record(100)
    record.recorder.spans += [span for span in record.spans if span.position == 1]
    assert summarise([record]).stages[0].ms == 2


def test_epochs_are_taken_together_and_the_time_between_them_is_not() -> None:
    one, two = make_record(50), make_record(50)
    both = summarise([one, two])
    assert both.num_minibatches == 2 * summarise([one]).num_minibatches
    assert both.seconds == pytest.approx(2 * summarise([one]).seconds)


def test_counters_are_differences_over_the_epoch() -> None:
    record = make_record(50)
    record.before = Counters({"x": (10, 5)}, 1, 1_000)
    record.after = Counters({"x": (30, 6), "y": (1, 1)}, 3, 5_000)
    summary = summarise([record, record])
    assert summary.caches == {"x": (40, 2), "y": (2, 2)}
    assert summary.num_replaced == 4
    assert summary.read_bytes_per_second == pytest.approx(8_000 / summary.seconds)


def test_threads_that_could_run_and_those_that_did_are_counted_over_the_epoch() -> None:
    record = make_record(50)
    whole = record.ended - record.handovers[0].asked
    record.before = Counters({}, 0, 0, {1: (5, 7), 2: (100, 100)})
    record.after = Counters({}, 0, 0, {1: (5 + whole, 7), 3: (0, 3 * whole)})
    summary = summarise([record, make_record(50)])
    assert summary.cores_used == pytest.approx(0.5)
    assert summary.core_wait == pytest.approx(0.75)


def test_an_outlier_changes_no_median() -> None:
    record = make_record(100)
    slow = record.spans[50]
    record.recorder.spans[50] = slow._replace(own=slow.own + 1_000 * MS)
    assert summarise([record]).worker_ms == 6


def test_few_mini_batches_are_summarised_too() -> None:
    assert (quantile([], 0.5), quantile([3, 1, 2], 0.5), quantile([1, 2], 1.0)) == (0, 2, 2)
    for count in (1, 2, 5):
        assert summarise([make_record(count)]).num_minibatches >= 1


def test_the_table_begins_with_the_verdict_and_has_at_most_20_lines() -> None:
    record = make_record(200)
    record.after = Counters({"x": (3, 1)}, 0, 10**10)
    stages = tuple(StageTime(StageRow(n, f"Stage{n}", "worker"), n, n, 0.05, 1.0) for n in range(20))
    summary = replace(summarise([record]), stages=stages, rows={"x": (1000, 4_000_000)})
    lines = write_table(summary, judge(summary)).splitlines()
    assert len(lines) <= 20
    assert all(len(line) <= 120 for line in lines)
    assert lines[0].startswith("Your step waits 80 % of the time")
    text = "\n".join(lines)
    for part in ("Stage19", "66.00", "12 others", "workers: 2 (process)", "x 1,000 rows, 4.00 MB", "x 75 % of 4 rows"):
        assert part in text
    assert "Stage3\n" not in text  # it is among the others


@given(st.integers(0, 400), st.integers(0, 30), st.booleans())
def test_no_table_has_more_than_20_lines(words: int, num_stages: int, has_more: bool) -> None:
    record = make_record(200)
    if has_more:
        record.after = Counters({"x": (3, 1)}, 0, 10**10)
    stages = tuple(StageTime(StageRow(n, f"Stage{n}", "main"), n, n, 0.05, 1.0) for n in range(num_stages))
    summary = replace(summarise([record]), stages=stages, rows={"x": (1000, 4_000_000)} if has_more else {})
    lines = write_table(summary, Verdict("unclear", "word " * words + "end")).splitlines()
    assert len(lines) <= 20
    named = sum(" Stage" in line for line in lines)
    others = next((int(line.split()[1]) for line in lines if line.endswith(" others")), 0)
    assert named + others == num_stages


def items() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=1)


def span(begin: int, end: int) -> Span:
    return Span(1, "Stage", "", 0, 0, begin, end, end - begin, 0, 1, 1)


def test_a_span_has_the_time_without_what_is_within() -> None:
    recorder, inner, outer = Recorder(), items(), items().transform()
    recorder.stage_begin(outer, None)
    recorder.stage_begin(inner, gf.Key(0, 3, 5))
    time.sleep(0.02)
    recorder.stage_end(inner, gf.Key(0, 3, 5))
    recorder.stage_end(outer, None)
    first, second = recorder.spans
    assert (first.name, first.position, first.epoch, first.minibatch, first.side) == ("ItemSampler", 1, 3, 5, "")
    assert (second.name, second.position, second.minibatch) == ("MiniBatchTransformer", 2, -1)
    assert second.begin <= first.begin < first.end <= second.end
    assert first.own == first.end - first.begin >= 20_000_000
    assert second.own == second.end - second.begin - first.own
    assert first.cpu < 15_000_000  # sleeping takes none


def test_cpu_time_is_that_of_the_thread() -> None:
    recorder, stage = Recorder(), items()
    recorder.stage_begin(stage, None)
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    recorder.stage_end(stage, None)
    assert recorder.spans[0].cpu >= 20_000_000


def test_threads_do_not_see_each_others_spans() -> None:
    recorder, stage = Recorder(), items()
    recorder.stage_begin(stage, None)

    def work() -> None:
        recorder.wait_begin(stage, "reader")
        recorder.wait_end(stage, "reader")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    recorder.stage_end(stage, None)
    waited, made = recorder.spans
    assert (waited.side, made.side) == ("reader", "")
    assert waited.thread != made.thread == threading.get_ident()
    assert made.own == made.end - made.begin


def test_another_observer_is_told_of_the_same() -> None:
    told: list[Any] = []

    class Log:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: told.append((name, *arguments))

    recorder, stage = Recorder(Log(), record_functions=True), items()
    recorder.stage_begin(stage, None)
    recorder.wait_begin(stage, "maker")
    recorder.wait_end(stage, "maker")
    recorder.stage_end(stage, None)
    assert told == [
        ("stage_begin", stage, None),
        ("wait_begin", stage, "maker"),
        ("wait_end", stage, "maker"),
        ("stage_end", stage, None),
    ]


def test_times_of_another_clock_come_to_lie_between_request_and_answer() -> None:
    sent = Measured("minibatch", [span(1_000, 1_010), span(1_010, 1_040)])
    moved = sent.between(100, 200, FIRST_SERVER + 1)
    assert [(span.name, span.begin, span.end) for span in moved.spans] == [
        ("request", 100, 200),
        ("Stage", 130, 140),
        ("Stage", 140, 170),
    ]
    assert moved.minibatch == "minibatch"
    assert [span.process for span in moved.spans[1:]] == [FIRST_SERVER + 1] * 2
