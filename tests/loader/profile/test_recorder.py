"""How times are taken: in threads, and on other machines."""

import threading
import time
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.loader.profile import FIRST_SERVER, Measured, Recorder, Span

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
    sent = Measured("minibatch", [span(1_000, 1_010), span(1_010, 1_040)])
    moved = sent.between(100, 200, FIRST_SERVER + 1)
    assert [(span.name, span.begin, span.end) for span in moved.spans] == [
        ("request", 100, 200),
        ("Stage", 130, 140),
        ("Stage", 140, 170),
    ]
    assert moved.minibatch == "minibatch"
    assert [span.process for span in moved.spans[1:]] == [FIRST_SERVER + 1] * 2
