import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, record_function

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.loader.profile import EpochRecord, Profile, Span
from tests.kinds import pipelines
from tests.unit.loader.records import MS, make_record

Events = list[dict[str, Any]]


def check(events: Events) -> None:
    """Check the requirements of viewers: nested times on each track, names, arrows from earlier events."""
    tracks = defaultdict(list)
    names: dict[str, set[Any]] = {"process_name": set(), "thread_name": set()}
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            begin, took = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, begin + took))
        elif event["ph"] == "M":
            assert event["args"]["name"]
            names[event["name"]].add((event["pid"], event["tid"]))
        elif event["ph"] in "stf":
            arrows[event["id"]].append(event)
    assert tracks.keys() == names["thread_name"] == names["process_name"]
    for ranges in tracks.values():
        around: list[int] = []
        for begin, end in sorted(ranges, key=lambda times: (times[0], -times[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)
    for steps in arrows.values():
        assert [step["ph"] for step in steps] == ["s", *["t"] * (len(steps) - 2), "f"]
        assert [step["ts"] for step in steps] == sorted(step["ts"] for step in steps)
        for step in steps:
            at = round(step["ts"] * 1000)
            assert any(begin <= at <= end for begin, end in tracks[step["pid"], step["tid"]])


def trace_of(profile: Profile, tmp_path: Path) -> Events:
    """Return the events of a trace, which are those that viewers open."""
    profile.to_chrome_trace(tmp_path / "trace.json")
    events = list(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    check(events)
    return events


def measured(*records: EpochRecord) -> Profile:
    profile = Profile()
    profile.records += records or [make_record(10)]
    return profile


def test_the_trace_has_a_range_for_each_span_and_step_and_a_counter(tmp_path: Path) -> None:
    record = make_record(10, work_ms=(1, 2))
    record.recorder.spans.append(Span(3, "InWorkers", "reader", -1, -1, 0, MS, MS, 0, record.recorder.process, 1))
    events = trace_of(measured(record), tmp_path)
    names = Counter(event["name"] for event in events if event["ph"] == "X")
    assert names == {"ItemSampler": 10, "NeighborSampler": 10, "step": 10, "wait at InWorkers": 1}
    sampled = next(event["args"] for event in events if event["name"] == "NeighborSampler")
    assert sampled == {"epoch": 0, "mini-batch": 0}
    assert [event["args"] for event in events if event["ph"] == "C"] == [{"in flight": 2, "ready": 1}] * 10
    assert [event["ph"] for event in events if "id" in event] == ["s", "f"] * 10


@given(times=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_ranges_that_overlap_in_part_are_cut(tmp_path_factory: pytest.TempPathFactory, times: list[Any]) -> None:
    record = make_record(10)
    for begin, end in map(sorted, times):
        record.recorder.spans.append(Span(1, "Mine", "", 0, 0, begin, end, end - begin, 0, 1, 1))
    shown = [event for event in trace_of(measured(record), tmp_path_factory.mktemp("trace")) if event["name"] == "Mine"]
    begins = sorted(round(event["ts"] * 1000) for event in shown)
    assert [begin - begins[0] for begin in begins] == [b - min(map(min, times)) for b in sorted(map(min, times))]


def test_traces_of_real_epochs_open_in_viewers(tmp_path: Path) -> None:
    options: dict[str, Any]
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}):
        with gf.DataLoader(pipelines.homogeneous(), seed=3, **options) as loader, loader.profile() as profile:
            count = len(list(loader)) + len(list(loader))
        events = trace_of(profile, tmp_path)
        assert sum(event["name"] == "step" for event in events) == count, options
        assert sum(event["ph"] == "f" for event in events) == (count if options["num_workers"] else 0), options


def test_a_server_is_a_process_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pipe = pipelines.homogeneous()
    with (
        SamplingServer(pipe, token="t") as server,
        gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token="t")) as loader,
        loader.profile() as profile,
    ):
        list(loader)
    events = trace_of(profile, tmp_path)
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "main process",
        "sampling server 1",
    }


def test_only_the_latest_mini_batches_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("graphfeed.loader.profile.trace.MOST_MINIBATCHES", 15)
    events = trace_of(measured(*(make_record(10, work_ms=(1, 2)) for _ in range(3))), tmp_path)
    assert sum(event["name"] == "step" for event in events) == 15


def test_a_trace_of_torch_s_profiler_is_joined_at_the_right_time(tmp_path: Path) -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=0, seed=3)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as torch_profile, loader.profile() as profile:
        for _ in loader:
            with record_function("my step"):
                torch.ones(1000).sum()
    torch_profile.export_chrome_trace(str(tmp_path / "torch.json"))
    (tmp_path / "torch.json.gz").write_bytes(gzip.compress((tmp_path / "torch.json").read_bytes()))
    for suffix in ("", ".gz"):
        profile.to_chrome_trace(tmp_path / f"both.json{suffix}", into=tmp_path / f"torch.json{suffix}")
        data = (tmp_path / f"both.json{suffix}").read_bytes()
        events = json.loads(gzip.decompress(data) if suffix else data)["traceEvents"]
        steps = [event for event in events if event["name"] == "step"]
        mine = [event for event in events if event["name"] == "my step"]
        assert len(mine) == len(steps) > 0
        for step, own in zip(steps, sorted(mine, key=lambda event: event["ts"]), strict=True):
            # Both read the calendar's clock next to their own, which takes some microseconds, or a time slice.
            assert abs(own["ts"] - step["ts"]) < 100_000


NO_TRACES = ["", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": [], "baseTimeNanoseconds": ""}']


def test_what_is_no_trace_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for text in NO_TRACES:
        (tmp_path / "torch.json").write_text(text)
        with pytest.raises(ValueError, match=r"into must be a trace written by torch.profiler .*torch.json is not"):
            measured().to_chrome_trace(tmp_path / "trace.json", into=tmp_path / "torch.json")
        assert [path.name for path in tmp_path.iterdir()] == ["torch.json"]
