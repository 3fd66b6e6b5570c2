"""Each rule with figures that it is meant for; what real pipelines get is in test_profile."""

from dataclasses import replace
from typing import Any

import pytest

from graphfeed.loader.profile import verdict
from graphfeed.loader.profile.epoch_record import StageRow
from graphfeed.loader.profile.summary import StageTime, Summary, summarise
from graphfeed.loader.profile.verdict import RULES, judge
from tests.loader.profile.records import make_record


def summary(*, setting: dict[str, Any] | None = None, **changes: Any) -> Summary:
    """Return figures of two busy worker processes on eight cores, changed."""
    usual = replace(summarise([make_record(200, wait_ms=2, work_ms=(1, 5))]), transfer_ms=0.2, seconds=0.58)
    return replace(usual, setting=replace(usual.setting, **(setting or {})), **changes)


def stage(name: str, where: str, ms: float, cpu: float, share: float = 1.0) -> StageTime:
    return StageTime(StageRow(2, name, where), ms, ms, share, cpu)


INLINE = {"num_workers": 0, "window": 0}
THREADS = {"worker": "thread"}
CASES: dict[str, tuple[Summary, str]] = {
    "too few": (summary(num_minibatches=19), "19 in 0.58 s"),
    "step": (summary(waits=0.01, setting={"num_workers": 6}), "num_workers=3 would do"),
    "restarts": (summary(num_replaced=3), "3 workers died"),
    "start": (summary(first_seconds=2.0), "took 2.0 s"),
    "inline": (
        summary(setting=INLINE, worker_ms=0, main_ms=6.0, stages=(stage("NeighborSampler", "main", 6.0, 1.0),)),
        "num_workers=7 may give up to",
    ),
    "small": (summary(worker_ms=0.1), "100 us to make"),
    "main process": (
        summary(main_ms=2.0, stages=(stage("Mine", "main", 2.0, 1.0),)),
        "runs in your loop's own thread",
    ),
    "main process ahead": (
        summary(worker_ms=1.0, beside_ms=3.0, stages=(stage("CopyTo", "prefetch", 3.0, 1.0),)),
        "CopyTo (stage 2) runs in a thread of the main",
    ),
    "server": (summary(setting={"worker": "server"}, request_ms=8.0), "more requests at once (num_workers=4)"),
    "network": (summary(setting={"worker": "server"}, request_ms=24.0), "18.0 ms of it on the way"),
    "server queue": (
        summary(setting={"worker": "server"}, server_queue_ms=9.0, request_ms=16.0),
        "9.0 ms of it in the server's queue: more servers",
    ),
    "disk": (
        summary(read_bytes_per_second=9e8, num_bytes=1e6, stages=(stage("FeatureFetcher", "worker", 5.0, 0.2),)),
        "reads 900 MB/s from disk",
    ),
    "interpreter lock": (summary(setting=THREADS, worker_cpu_ms=3.0), "try worker='process', up to 2.0 times"),
    "window": (
        summary(worker_ms=3.0, worker_mean_ms=4.0, worker_p95_ms=30.0, in_flight=4.0, ready=3.0),
        "prefetch_factor=4",
    ),
    "window of one": (
        summary(
            setting={"num_workers": 1, "window": 1},
            worker_ms=1.0,
            worker_mean_ms=2.0,
            worker_p95_ms=9.0,
            in_flight=1.0,
            ready=1.0,
        ),
        "the window of 1 leaves none in store for a slow one: prefetch_factor=2",
    ),
    "transfer": (summary(worker_ms=3.0, worker_p95_ms=3.0, transfer_ms=3.0), "travels 3.0 ms between processes"),
    "cache": (
        summary(
            worker_ms=3.0, worker_p95_ms=3.0, caches={"x": (1, 3)}, stages=(stage("FeatureFetcher", "worker", 3, 1),)
        ),
        "the cache of x lacks 75 %",
    ),
    "memory bandwidth": (
        summary(rows={"x": (9, 6e7)}, stages=(stage("FeatureFetcher", "worker", 6.0, 1.0),)),
        "so more workers don't help",
    ),
    "cores": (summary(setting={"num_cores": 2}, worker_cpu_ms=6.0), "all 2 cores are at work"),
    "workers": (summary(), "num_workers=4 may give up to"),
    "unclear": (summary(worker_ms=3.0, worker_p95_ms=3.0), "no single cause stands out"),
}


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand for a memory of which all cores together copy 16 GB/s; return how often it was measured."""
    asked: list[int] = []

    def copy_rate(cores: int) -> float:
        asked.append(cores)
        return 16e9

    monkeypatch.setattr(verdict, "copy_rate", copy_rate)
    return asked


@pytest.mark.parametrize("cause", CASES)
def test_the_verdict_names_the_cause_and_what_to_try(cause: str) -> None:
    figures, text = CASES[cause]
    judged = judge(figures)
    assert judged.cause == cause.replace(" queue", "").replace(" ahead", "").replace(" of one", "")
    assert text in judged.text
    assert judged.gain >= 1
    assert judged.gain <= 1 / (1 - figures.waits) + 0.01


@pytest.mark.parametrize("changes", [{"rows": {"x": (9, 3e6)}}, {"rows": {"x": (9, 6e7)}, "worker_ms": 1.0}])
def test_memory_is_measured_only_where_busy_workers_read_much(changes: dict[str, Any], memory: list[int]) -> None:
    judge(summary(stages=(stage("FeatureFetcher", "worker", 6.0, 1.0),), **changes))
    assert memory == []


def test_each_rule_has_a_case() -> None:
    asked = {rule.__name__ for rule in RULES for figures, _ in CASES.values() if rule(figures) is not None}
    assert asked == {rule.__name__ for rule in RULES}
