import pytest

import graphfeed as gf
from graphfeed.loader.profile import Recorder
from graphfeed.loader.profile.gpu_timer import GpuTimer
from tests import pipelines
from tests.digests import digest, digests
from tests.loader.late_streams import current_stream, late_streams

pytestmark = pytest.mark.usefixtures("no_leaks")


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
