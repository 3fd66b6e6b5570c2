"""How times are taken: in threads, on other machines, and on GPUs."""

import random
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.loader.profile import FIRST_SERVER, Measured, Recorder, RemoteClock, Span
from graphfeed.loader.profile.gpu_timer import GpuTimer
from tests import pipelines
from tests.digests import digest, digests
from tests.loader.late_streams import current_stream, late_streams

pytestmark = pytest.mark.usefixtures("no_leaks")


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
    clock = RemoteClock(FIRST_SERVER + 1)
    moved = Measured("minibatch", [span(1_000, 1_010), span(1_010, 1_040)]).between(100, 200, clock)
    assert [(span.name, span.begin, span.end) for span in moved.spans] == [
        ("request", 100, 200),
        ("Stage", 130, 140),
        ("Stage", 140, 170),
    ]
    assert moved.minibatch == "minibatch"
    assert [span.process for span in moved.spans[1:]] == [FIRST_SERVER + 1] * 2


def test_an_answer_that_was_late_is_seen_by_the_clock_of_a_quick_one() -> None:
    clock = RemoteClock(FIRST_SERVER)
    Measured(None, [span(1_000, 1_098)]).between(100, 200, clock)
    moved = Measured(None, [span(2_000, 2_050)]).between(1_101, 1_500, clock)
    assert moved.spans[1][5:7] == (1_101, 1_151)
    # By that clock it began before it was asked for, which can't be.
    moved = Measured(None, [span(3_000, 3_050)]).between(2_120, 2_500, clock)
    assert moved.spans[1][5:7] == (2_120, 2_151)


SECOND = 1_000_000_000


@given(st.integers(-(10**15), 10**15), st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_error_is_at_most_half_of_the_shortest_way(ahead: int, count: int, draws: random.Random) -> None:
    clock, now, shortest = RemoteClock(1), 0, None
    for _ in range(count):
        there, work, back = (draws.randrange(1_000, 10_000_000) for _ in range(3))
        received = now + there + ahead
        found = clock.ahead(now, received, received + work, now + there + work + back)
        shortest = there + back if shortest is None else min(shortest, there + back)
        # Clocks may have drifted since that answer, so a later one that took a bit longer may have taken its place.
        assert abs(found - ahead) <= shortest / 2 + 1 + 5e-5 * now
        now += there + work + back


def test_an_old_answer_gives_way_as_clocks_drift() -> None:
    clock = RemoteClock(1)
    assert clock.ahead(0, 1_000, 1_000, 0) == 1_000
    asked = 10 * SECOND
    assert clock.ahead(asked, asked + 2_000_000, asked + 2_000_000, asked + 3_000_000) == 1_000
    assert clock.ahead(asked, asked + 200_000, asked + 200_000, asked + 100_000) == 150_000


def test_work_on_a_stream_is_timed_without_that_of_calls_within_once_it_is_done() -> None:
    with late_streams():
        timer = GpuTimer({(2, "Outer"): "meta", (1, "Inner"): "meta"})
        outer = timer.begin((2, "Outer"))
        inner = timer.begin((1, "Inner"))
        assert outer is not None
        assert inner is not None
        for _ in range(10):
            current_stream().add(int)
        outer.within.append(timer.end(inner, (1, "Inner"), (0, 7), 100))
        for _ in range(5):
            current_stream().add(int)
        timer.end(outer, (2, "Outer"), (0, 7), 90)
        assert timer.calls() == ()
        current_stream().work()
        calls = timer.calls()
    # Each event is a piece of work, too, and each piece takes the stand-in a millisecond.
    assert [(call.name, call.begin, call.end, call.own) for call in calls] == [
        ("Inner", 1_000_000, 12_000_000, 11_000_000),
        ("Outer", 0, 18_000_000, 7_000_000),
    ]
    assert {call[2:5] for call in calls} == {(0, 7, 100), (0, 7, 90)}


def test_stages_on_the_cpu_have_no_events() -> None:
    assert GpuTimer({(2, "CopyTo"): "meta"}).begin((1, "ItemSampler")) is None
    assert Recorder().gpu_timer is None


def test_a_profile_times_each_call_of_the_stages_behind_a_copy() -> None:
    pipe = pipelines.homogeneous()
    with late_streams() as log:
        with gf.DataLoader(pipe.copy_to("meta"), 2, seed=3) as loader:
            list(loader)
            waits = [entry for entry in log if entry[1] == "waits for"]
            log.clear()
            loader.set_epoch(0)
            with loader.profile() as profile:
                found = [digest(minibatch.to("cpu")) for minibatch in loader]
        # Nobody waits more than without a profile.
        assert [entry for entry in log if entry[1] == "waits for"] == waits
    assert found == digests(pipe.with_seed(3, 0))
    (record,) = profile.records
    stages = {row.name: row.device for row in record.setting.stages if row.device}
    assert stages == {"CopyTo": "meta"}
    assert [(call.name, call.minibatch, call.device) for call in record.gpu_calls if call.minibatch >= 0] == [
        ("CopyTo", index, "meta:0") for index in range(len(found))
    ]
    assert {call.stream == 0 for call in record.gpu_calls} == {False}
    assert all(call.end > call.begin for call in record.gpu_calls)
    assert profile.summary is not None
    assert profile.summary.stages[-1].gpu_ms > 0
    assert "GPU" in str(profile)
