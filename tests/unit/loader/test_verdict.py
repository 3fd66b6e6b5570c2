"""The verdict on an epoch: each rule with figures that it is meant for, then real pipelines."""

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.loader.executors import available_cores
from graphfeed.loader.profile import StageRow, Summary, summarise
from graphfeed.loader.profile.epoch_record import bytes_read
from graphfeed.loader.profile.summary import StageTime
from graphfeed.loader.profile.verdict import judge
from tests.unit.loader.records import make_record


def summary(*, setting: dict[str, Any] | None = None, **changes: Any) -> Summary:
    """Return figures of two busy worker processes on eight cores, changed."""
    usual = replace(summarise([make_record(200, wait_ms=2, work_ms=(1, 5))]), transfer_ms=0.2, seconds=0.58)
    return replace(usual, setting=replace(usual.setting, **(setting or {})), **changes)


def stage(name: str, where: str, ms: float, cpu: float, share: float = 1.0) -> StageTime:
    return StageTime(StageRow(2, name, where), ms, ms, share, cpu)


def fetching_ms(ms: float, cpu: float = 1.0, where: str = "worker") -> tuple[StageTime, ...]:
    return (stage("FeatureFetcher", where, ms, cpu),)


INLINE = {"num_workers": 0, "most_in_flight": 0}
THREADS, SERVER = {"worker": "thread"}, {"worker": "server"}
TWO_CORES = {"worker": "thread", "num_cores": 2}
BUSY_MACHINE = {"core_wait": 0.5, "cores_used": 0.8}
"""Two threads get 0.8 cores, and could use twice as many."""
IN_MAIN = (stage("ItemSampler", "main", 2.5, 0.02), stage("Mine", "worker", 6.0, 0.4))
DISK: dict[str, Any] = {"read_bytes_per_second": 9e8, "num_bytes": 1e6}
CASES: list[tuple[str, Summary, str]] = [
    ("too few", summary(num_minibatches=19), r"needs at least 20 mini-batches and 0\.2 s .* saw 19 in 0\.58 s"),
    ("too few", summary(num_minibatches=5, waits=0.01), r"5 in 0\.58 s"),
    ("step", summary(waits=0.01, setting={"num_workers": 6}), "num_workers=3 would suffice"),
    (
        "inline",
        summary(setting=INLINE, worker_ms=0, main_ms=6.0, stages=(stage("NeighborSampler", "main", 6.0, 1.0),)),
        "num_workers=7 may give up to",
    ),
    ("main process", summary(main_ms=2.0, stages=(stage("Mine", "main", 2.0, 1.0),)), "runs in your loop's own thread"),
    (
        "main process",
        summary(worker_ms=1.0, beside_ms=3.0, stages=(stage("CopyTo", "prefetch", 3.0, 1.0),)),
        r"CopyTo \(stage 2\) runs in a thread of the main",
    ),
    (
        "server",
        summary(setting=SERVER, server_queue_ms=9.0, request_ms=17.0),
        r"a request takes 17\.0 ms, 9\.0 of them in the server's queue and 2\.0 in transit",
    ),
    ("server", summary(num_minibatches=5, setting=SERVER, request_ms=8.0), ""),
    ("disk", summary(**DISK, stages=fetching_ms(5.0, 0.2)), "reads 900 MB/s from disk"),
    ("disk", summary(num_minibatches=5, **DISK, stages=fetching_ms(9.0, 0.2, "main")), "from disk"),
    ("interpreter lock", summary(setting=THREADS, worker_cpu_ms=3.0), r"try worker='process', up to 2\.0 times"),
    ("interpreter lock", summary(setting=TWO_CORES, worker_cpu_ms=1.4, **BUSY_MACHINE), "use the cores"),
    (
        "interpreter lock",
        summary(setting=TWO_CORES, stages=IN_MAIN, main_ms=2.5, worker_cpu_ms=3.0, cores_used=1.0),
        "Mine",
    ),
    ("memory bandwidth", summary(rows={"x": (9, 6e10)}, stages=fetching_ms(6.0)), "so more workers don't help"),
    ("cores", summary(setting={"num_cores": 2}, worker_cpu_ms=6.0), "all 2 cores are busy"),
    (
        "cores",
        summary(setting=TWO_CORES, worker_cpu_ms=2.4, **BUSY_MACHINE),
        r"no core is idle .*; other programs use the cores: runnable threads waited 50 % of the time for a core, and "
        r"1\.0 of 2 are left",
    ),
    (
        "cores",
        summary(
            setting={**TWO_CORES, "num_workers": 4}, worker_ms=12.0, worker_cpu_ms=6.0, core_wait=0.5, cores_used=1.9
        ),
        "all 2 cores are busy",
    ),
    (
        "cores",
        summary(setting={"num_cores": 1, "quota": 0.5}, worker_cpu_ms=1.5, core_wait=0.6, cores_used=0.5),
        r"a quota allows 0\.5 cores: runnable threads waited 60 %",
    ),
    ("workers", summary(), "most of it waiting for a server or similar: num_workers=4 may give up to"),
    ("workers", summary(setting={"num_cores": 3}, worker_cpu_ms=6.0), "num_workers=3 may give up to"),
    ("workers", summary(core_wait=0.9, cores_used=0.02, worker_cpu_ms=0.1), "times the rate$"),
    ("workers", summary(num_minibatches=5, worker_cpu_ms=0.1, worker_ms=200.0), "waiting for a server or similar"),
    ("unclear", summary(worker_ms=3.0), "no single cause stands out"),
    ("unclear", summary(setting=TWO_CORES, worker_cpu_ms=1.6, cores_used=1.4), ""),
]


def test_the_verdict_names_the_cause_and_what_to_try() -> None:
    """No more workers than cores are suggested, unless they wait for a disk or a server."""
    for cause, figures, text in CASES:
        found = judge(figures)
        assert found.cause == cause, found.text
        assert re.search(text, found.text), found.text
        assert 1 <= found.gain <= 1 / (1 - figures.waits) + 0.01, found.text
        proposed = [int(count) for count in re.findall(r"num_workers=(\d+)", found.text)]
        assert "waiting for" in found.text or max(proposed, default=0) <= figures.setting.num_cores


COUNT = 40
ROWS = 400_000
KEY = ("node", None, "x")


class Sleep(gf.Transform):
    """Sleeps, which uses no core."""

    seconds: float

    def __call__(self, minibatch: Any) -> Any:
        time.sleep(self.seconds)
        return minibatch


class Spin(gf.Transform):
    """Holds the interpreter's lock for a while, as Python code does."""

    seconds: float

    def __call__(self, minibatch: Any) -> Any:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return minibatch


class SleepInMain(gf.Transform):
    """Sleeps in the loop's thread."""

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            time.sleep(0.01)
            yield minibatch


def items(count: int = COUNT) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


def judged(
    cause: str, pipe: gf.Datapipe, step: float = 0.0, prepare: Callable[[], object] = int, **options: Any
) -> str:
    """Return the verdict on a loader. Repeated if a busy machine hides the cause."""
    for _ in range(5):
        with gf.DataLoader(pipe, seed=0, **options) as loader:
            next(iter(loader))  # starts the workers
            prepare()
            with loader.profile() as profile:
                for _ in loader:
                    time.sleep(step)
        if profile.verdict.cause == cause:
            break
    assert profile.verdict.cause == cause, str(profile)
    return profile.verdict.text


thorough = pytest.mark.thorough
BOTTLENECKS: list[Any] = [
    ("inline", Sleep(items(), 0.01), {"num_workers": 0}, r"Sleep \(stage 2\)"),
    ("workers", Sleep(items(80), 0.02), {"num_workers": 2}, r"Sleep \(stage 2\).* num_workers=4 may give"),
    ("step", Sleep(items(60), 0.005), {"step": 0.02, "num_workers": 6}, "num_workers=1 would suffice"),
    pytest.param("main process", SleepInMain(items()), {"num_workers": 2}, r"SleepInMain \(stage 2\)", marks=thorough),
]
"""The cause, a pipeline that has it, the options of its loader, and a part of the verdict. Sleeping uses no core, so
these are valid on a busy machine, too."""


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "pipe", "options", "words"), BOTTLENECKS)
def test_the_bottleneck_of_a_real_pipeline_is_named(
    cause: str, pipe: gf.Datapipe, options: dict[str, Any], words: str
) -> None:
    assert re.search(words, judged(cause, pipe, **options))


@pytest.mark.slow
def test_a_stage_that_holds_the_interpreters_lock() -> None:
    if os.getloadavg()[0] > 2 * available_cores():
        pytest.skip("other programs use all cores, which hides what this one's threads wait for")
    assert "worker='process'" in judged("interpreter lock", Spin(items(100), 0.01), num_workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [2, 4])
def test_more_threads_than_cores_are_not_proposed_for_what_holds_the_lock(num_workers: int) -> None:
    """Neither on a busy machine, nor on an idle one."""
    with gf.DataLoader(Spin(items(100), 0.01), num_workers=num_workers) as loader, loader.profile() as profile:
        for _ in loader:
            pass
    proposed = [int(count) for count in re.findall(r"num_workers=(\d+)", profile.verdict.text)]
    assert max(proposed, default=0) <= available_cores(), str(profile)


@thorough
def test_a_slow_server() -> None:
    pytest.importorskip("pyarrow")
    pipe = Sleep(items(80), 0.02)
    with SamplingServer(pipe, token="t") as server:
        assert "Sleep (stage 2)" in judged("server", pipe, executor=gf.SamplingServers([server.address], "t"))


@thorough
def test_a_cold_disk(disk_path: Path) -> None:
    path = disk_path / "x.npy"
    np.save(path, np.zeros((ROWS, 128), np.float32))
    before = bytes_read(os.getpid())
    forget_pages(path)
    path.read_bytes()
    if bytes_read(os.getpid()) == before:
        pytest.skip("this system keeps temporary files in memory, or does not count reads")
    pipe: Any = fetching(gf.DiskBasedFeature(path))

    def begin_cold() -> None:
        # The system does not drop pages of a mapped file, and a feature maps its file once all of it is in memory.
        pipe.feature_store[KEY] = gf.DiskBasedFeature(path)
        forget_pages(path)

    judged("disk", pipe, num_workers=1, prepare=begin_cold)


def fetching(feature: Any) -> gf.Datapipe:
    """Return a pipeline that fetches random rows."""
    store = gf.BasicFeatureStore({KEY: feature})
    seeds = gf.ItemSet(torch.randperm(ROWS), names="seeds")
    return gf.ItemSampler(seeds, 2_000).fetch_feature(store, node_feature_keys=["x"])


def forget_pages(path: Path) -> None:
    """Drop a file from the page cache, so that it is next read from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
