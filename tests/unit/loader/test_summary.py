"""Figures computed from recorded times: medians, differences of counters, times of other machines, the table."""

import os
import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.loader.profile import FIRST_SERVER, Measured, Profile, Recorder, Span, StageRow, summarise
from graphfeed.loader.profile.epoch_record import Counters, bytes_read, thread_times
from tests.unit.loader.records import MS, make_record

ROWS = torch.zeros(4, 2)
MINIBATCHES: list[Any] = [
    gf.MiniBatch(seeds=torch.arange(4), node_features={"x": ROWS}),
    gf.MiniBatch(seeds=torch.arange(4), edge_features=[{("a:b:c", "x"): ROWS}]),
    {"seeds": torch.arange(4), "x": [ROWS]},
    SimpleNamespace(to_dict=lambda: {"seeds": torch.arange(4), "x": ROWS}),
]


def test_bytes_of_any_mini_batch_and_rows_of_each_feature_are_counted() -> None:
    record = make_record(1)
    for minibatch in [*MINIBATCHES, None, 3, object(), gf.MiniBatch()]:
        record.count_bytes(minibatch)
    assert record.sizes == [32 + 32] * len(MINIBATCHES) + [0] * 4
    assert record.rows == {"x": [(4, 32)], "a:b:c/x": [(4, 32)]}


def test_only_threads_that_work_have_times_and_a_process_that_is_gone_has_none() -> None:
    assert (bytes_read(2**22 + 1), thread_times([2**22 + 1])) == (0, {})
    me, end = threading.get_native_id(), time.thread_time() + 0.05
    before = thread_times([os.getpid()]).get(me)
    if before is None:
        pytest.skip("the system has no times of waiting for a core")
    while time.thread_time() < end:
        pass
    assert thread_times([os.getpid()])[me][0] - before[0] > 10 * MS


def test_times_are_medians_per_mini_batch() -> None:
    record = make_record(100)
    record.recorder.spans[50] = record.spans[50]._replace(own=1_000 * MS)  # an outlier
    summary = summarise([record])
    assert summary.num_minibatches == 93  # without the first mini-batches, when too few were in flight
    assert summary.rate == pytest.approx(200)
    assert summary.waits == pytest.approx(0.8)
    assert (summary.step_ms, summary.first_seconds) == (1, 0.004)
    assert (summary.worker_ms, summary.worker_cpu_ms) == (6, 3)
    assert (summary.queue_ms, summary.transfer_ms) == (0.5, 2)
    assert (summary.in_flight, summary.ready) == (3, 1)
    first, second = summary.stages
    assert (first.row.name, first.ms, second.row.name, second.ms) == ("ItemSampler", 1, "NeighborSampler", 5)
    assert (first.share + second.share, second.cpu) == (1, 0.5)
    record.recorder.spans += [span for span in record.spans if span.position == 1]
    assert summarise([record]).stages[0].ms == 2, "it was called twice for each mini-batch"
    assert [summarise([make_record(count)]).num_minibatches >= 1 for count in (1, 2, 5)] == [True] * 3


def test_epochs_are_summed_and_counters_are_differences_over_each() -> None:
    record = make_record(50)
    whole = record.ended - record.handovers[0].asked
    record.before = Counters({"x": (10, 5)}, 1, 1_000, {1: (5, 7), 2: (100, 100)})
    record.after = Counters({"x": (30, 6), "y": (1, 1)}, 3, 5_000, {1: (5 + whole, 7), 3: (0, 3 * whole)})
    one, two = summarise([record]), summarise([record, record])
    assert two.num_minibatches == 2 * one.num_minibatches
    assert two.seconds == pytest.approx(2 * one.seconds)
    assert (two.caches, two.num_replaced) == ({"x": (40, 2), "y": (2, 2)}, 4)
    assert two.read_bytes_per_second == pytest.approx(8_000 / two.seconds)
    assert one.cores_used == pytest.approx(1)
    assert one.core_wait == pytest.approx(0.75)


@given(st.integers(1, 30), st.booleans())
def test_no_table_has_more_than_20_lines(num_stages: int, has_more: bool) -> None:
    profile, record = Profile(), make_record(200)
    stages = tuple(StageRow(number, f"Stage{number}", "worker") for number in range(1, num_stages + 1))
    record.setting = replace(record.setting, stages=stages)
    spans = record.spans[::2]
    record.recorder.spans = [span._replace(position=row.position, name=row.name) for span in spans for row in stages]
    if has_more:
        record.after = Counters({"x": (3, 1)}, 0, 10**10)
        record.count_bytes(gf.MiniBatch(node_features={"x": ROWS}))
    profile.records.append(record)
    lines = str(profile).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith("Your step waits 80 % of the time")
    named = sum(bool(re.search(r" Stage\d+$", line)) for line in lines)
    others = next((int(line.split()[1]) for line in lines if line.endswith(" others")), 0)
    assert named + others == num_stages
    assert ("x 4 rows, 0.00 MB" in str(profile), "x 75 % of 4 rows" in str(profile)) == (has_more, has_more)


def test_a_span_has_the_time_without_nested_ones_and_other_observers_are_called() -> None:
    told: list[Any] = []

    class Log:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: told.append((name, *arguments))

    inner = gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=1)
    recorder, outer = Recorder(Log(), record_functions=True), inner.transform()
    recorder.stage_begin(outer, None)
    recorder.stage_begin(inner, gf.Key(0, 3, 5))
    time.sleep(0.02)
    recorder.stage_end(inner, gf.Key(0, 3, 5))
    recorder.wait_begin(outer, "maker")
    recorder.wait_end(outer, "maker")
    recorder.stage_end(outer, None)
    first, _, second = recorder.spans
    assert (first.name, first.position, first.epoch, first.minibatch, first.side) == ("ItemSampler", 1, 3, 5, "")
    assert (second.name, second.position, second.minibatch) == ("MiniBatchTransformer", 2, -1)
    assert second.begin <= first.begin < first.end <= second.end
    assert first.own == first.end - first.begin >= 20 * MS
    assert second.own <= second.end - second.begin - first.own
    assert first.cpu < 15 * MS  # sleeping takes none
    assert [name for name, *_ in told] == [
        "stage_begin", "stage_begin", "stage_end", "wait_begin", "wait_end", "stage_end"
    ]  # fmt: skip


def test_times_of_another_clock_come_to_lie_between_request_and_answer() -> None:
    spans = [Span(1, "Stage", "", 0, 0, begin, end, end - begin, 0, 1, 1) for begin, end in ((0, 10), (10, 40))]
    moved = Measured("minibatch", spans).between(100, 200, FIRST_SERVER + 1)
    assert [(span.name, span.begin, span.end) for span in moved.spans] == [
        ("request", 100, 200),
        ("Stage", 130, 140),
        ("Stage", 140, 170),
    ]
    assert moved.minibatch == "minibatch"
    assert [span.process for span in moved.spans[1:]] == [FIRST_SERVER + 1] * 2
