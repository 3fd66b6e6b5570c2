from collections import defaultdict

from graphfeed.loader.profile import Span
from graphfeed.loader.profile.trace import trace_events
from tests.loader.profile.records import MS, make_record


def test_the_trace_has_a_range_for_each_span_and_step_and_a_counter() -> None:
    record = make_record(10)
    record.recorder.spans.append(Span(3, "InWorkers", "reader", -1, -1, 0, MS, MS, 0, record.recorder.process, 1))
    events = list(trace_events(record))
    ranges = [event for event in events if event["ph"] == "X"]
    assert len(ranges) == 20 + 9 + 1
    assert {event["name"] for event in ranges} == {"ItemSampler", "NeighborSampler", "step", "wait at InWorkers"}
    assert next(event["args"] for event in ranges if event["name"] == "NeighborSampler") == {
        "epoch": 0,
        "mini-batch": 0,
    }
    assert all(event["dur"] >= 0 for event in ranges)
    assert [event["args"] for event in events if event["ph"] == "C"] == [{"in flight": 2, "ready": 1}] * 10


def test_each_track_has_names_and_ranges_that_nest() -> None:
    events = list(trace_events(make_record(10, work_ms=(1, 2))))
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert tracks.keys() == named
    for spans in tracks.values():
        for begin, end in spans:
            assert not any(begin < other < end < after or other < begin < after < end for other, after in spans)
