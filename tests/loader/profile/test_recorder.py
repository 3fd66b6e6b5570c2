import threading
import time
from typing import Any

import graphfeed as gf
from graphfeed.loader.profile import FIRST_SERVER, Measured, Recorder, RemoteClock, Span


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
