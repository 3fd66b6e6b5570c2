"""Profiles of real loaders, whose bottleneck is known."""

import copy
import gc
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import traverse
from graphfeed.distributed import SamplingServer
from graphfeed.loader.executors import available_cores
from graphfeed.loader.profile.epoch_record import bytes_read
from tests import pipelines
from tests.digests import digests

COUNT = 40
ROWS = 400_000
KEY = ("node", None, "x")


class Sleep(gf.Transform):
    """Takes a while without a core."""

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
    """Takes a while in the loop's thread."""

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            time.sleep(0.01)
            yield minibatch


def items(count: int = COUNT) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


@pytest.mark.parametrize(
    "options", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}], ids=str
)
def test_a_profile_changes_no_mini_batch_and_sees_all_stages(options: dict[str, Any]) -> None:
    expected = digests(gf.DataLoader(pipelines.homogeneous(), num_workers=0, seed=3))
    with gf.DataLoader(pipelines.homogeneous(), seed=3, **options) as loader, loader.profile() as profile:
        assert digests(loader) == expected
    (record,) = profile.records
    calls: dict[str, set[int]] = {}
    for span in record.spans:
        if not span.side and span.minibatch >= 0:
            calls.setdefault(span.name, set()).add(span.minibatch)
    every = set(range(len(expected)))
    assert calls == {row.name: every for row in record.setting.stages}
    assert len(record.handovers) == len(expected)
    assert len({span.process for span in record.spans}) == (2 if options.get("worker") == "process" else 1)


@pytest.mark.parametrize("of_user", [gf.MiniBatch(), "anything"], ids=["with a key", "without"])
def test_mini_batches_that_workers_are_sent_are_measured_too(of_user: Any) -> None:
    pipe: gf.Datapipe = gf.MiniBatchTransformer([copy.copy(of_user) for _ in range(8)])  # type: ignore[arg-type]
    with gf.DataLoader(pipe, num_workers=2) as loader, loader.profile() as profile:
        assert len(list(loader)) == 8
    expected = list(range(8)) if isinstance(of_user, gf.MiniBatch) else [-1] * 8
    assert sorted(trip.minibatch for trip in profile.records[0].trips) == expected


def test_a_loader_without_a_profile_measures_nothing() -> None:
    loader = gf.DataLoader(items(), num_workers=0)
    with loader.profile() as profile:
        list(loader)
    list(loader)
    assert len(profile.records) == 1


def test_profile_true_measures_each_epoch_and_shows_the_latest() -> None:
    with gf.DataLoader(items(), num_workers=1, profile=True) as loader:
        assert loader.profiled is None
        list(loader)
        first = loader.profiled
        list(loader)
        assert first is not None
        assert loader.profiled is not None
        assert loader.profiled is not first
        assert [len(profile.records) for profile in (first, loader.profiled)] == [1, 1]


@pytest.mark.parametrize("worker", ["thread", "process"])
def test_a_profile_keeps_neither_the_pipeline_nor_the_workers_alive(worker: str) -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=1, worker=worker, seed=3, persistent_workers=False)
    with loader.profile() as profile:
        list(loader)
    stages = [weakref.ref(stage) for stage in traverse(loader.plan.running)]
    del loader
    gc.collect()
    assert len(profile.records) == 1
    assert [stage() for stage in stages] == [None] * len(stages)


def test_two_blocks_at_once_are_refused() -> None:
    loader = gf.DataLoader(items(), num_workers=0)
    with loader.profile(), pytest.raises(RuntimeError, match="being measured in another block"), loader.profile():
        pass


def test_an_epoch_that_is_left_or_fails_is_measured_so_far() -> None:
    def fail(minibatch: Any) -> Any:
        if minibatch.key.index == 30:
            raise LookupError
        return minibatch

    loader = gf.DataLoader(items().transform(fail), num_workers=2)
    with loader.profile() as profile:
        with pytest.raises(LookupError):
            list(loader)
        next(iter(loader))
        iter(loader)
    assert [len(record.handovers) for record in profile.records] == [30, 1]
    assert profile.summary is not None


def test_explain_shows_the_measured_times() -> None:
    loader = gf.DataLoader(Sleep(items(), 0.01), num_workers=0)
    assert " ms " not in loader.explain()
    with loader.profile():
        list(loader)
    heading, line = loader.explain().splitlines()[:2]
    assert heading.split() == ["where", "ms", "bytes", "no.", "stage"]
    assert 10 <= float(line.split()[1]) < 20


def test_features_are_counted_and_all_figures_are_plain(tmp_path: Path) -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=0)
    with loader.profile(record_functions=True) as profile:
        first = next(iter(loader))
    (name, tensor), *_ = first.node_features.items()
    figures = json.loads(json.dumps(profile.to_dict()))
    assert figures["rows"][name] == [len(tensor), tensor.nbytes]
    assert figures["verdict"]["cause"] == "too few"
    profile.to_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert str(profile).splitlines()[0].startswith("Too few mini-batches")
    assert repr(profile) == "Profile(1 mini-batches, too few)"


def test_hits_of_caches_are_those_of_the_epoch() -> None:
    feature = gf.cpu_cached_feature(gf.TorchBasedFeature(torch.rand(1_000, 4)), 1 << 20)
    store = gf.BasicFeatureStore({("node", None, "x"): feature})
    graph = gf.fused_csc_sampling_graph(torch.arange(1_001), torch.arange(1_000))
    pipe = items(100).sample_neighbor(graph, [1]).fetch_feature(store, node_feature_keys=["x"])
    loader = gf.DataLoader(pipe, num_workers=0)
    counts: list[tuple[int, int]] = []
    for _ in range(2):
        with loader.profile() as profile:
            list(loader)
        assert profile.summary is not None
        counts += profile.summary.caches.values()
    assert [hits + misses for hits, misses in counts] == [100, 100]
    assert counts[1] == (100, 0)


def test_nothing_measured_says_so() -> None:
    with gf.DataLoader(items(), num_workers=0).profile() as profile:
        pass
    assert str(profile) == "no mini-batch was taken"
    assert profile.to_dict() == {"verdict": {"cause": "too few", "text": "no mini-batch was taken", "gain": 1.0}}


def judged(
    cause: str, pipe: gf.Datapipe, step: float = 0.0, prepare: Callable[[], object] = int, **options: Any
) -> str:
    """Return the verdict on a loader. It is asked for again if a busy machine hides the cause."""
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


@pytest.mark.slow
class TestKnownBottlenecks:
    """Sleeping stages take no core, so most of these hold on a busy machine too."""

    def test_a_slow_stage_in_the_loops_thread(self) -> None:
        assert "Sleep (stage 2)" in judged("inline", Sleep(items(), 0.01), num_workers=0)

    @pytest.mark.parametrize("worker", ["thread", "process"])
    def test_a_slow_stage_in_workers(self, worker: str) -> None:
        text = judged("workers", Sleep(items(80), 0.02), num_workers=2, worker=worker)
        assert "Sleep (stage 2)" in text
        assert "num_workers=4 may give" in text

    def test_a_slow_consumer_and_too_many_workers(self) -> None:
        text = judged("step", Sleep(items(60), 0.005), step=0.02, num_workers=6)
        assert "num_workers=1 would do" in text

    def test_a_slow_stage_of_the_main_process(self) -> None:
        assert "SleepInMain (stage 2)" in judged("main process", SleepInMain(items()), num_workers=2)

    def test_a_window_that_waits_for_slow_mini_batches(self) -> None:
        def uneven(minibatch: Any) -> Any:
            time.sleep(0.08 if minibatch.key.index % 8 == 0 else 0.005)
            return minibatch

        pipe = items(160).transform(uneven)
        assert "prefetch_factor=2" in judged("window", pipe, step=0.004, num_workers=4, prefetch_factor=1)

    def test_a_window_of_one(self) -> None:
        def uneven(minibatch: Any) -> Any:
            time.sleep(0.03 if minibatch.key.index % 4 == 0 else 0.002)
            return minibatch

        pipe = items(120).transform(uneven)
        assert "prefetch_factor=2" in judged("window", pipe, step=0.01, num_workers=1, prefetch_factor=1)

    def test_a_stage_that_holds_the_interpreters_lock(self) -> None:
        if os.getloadavg()[0] > 2 * available_cores():
            pytest.skip("other programs use all cores, which hides what this one's threads wait for")
        assert "worker='process'" in judged("interpreter lock", Spin(items(100), 0.01), num_workers=2)

    def test_a_slow_server(self) -> None:
        pytest.importorskip("pyarrow")
        pipe = Sleep(items(80), 0.02)
        with SamplingServer(pipe, token="t") as server:
            assert "Sleep (stage 2)" in judged("server", pipe, servers=[server.address], token="t")

    def test_a_cold_disk(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        np.save(path, np.zeros((ROWS, 128), np.float32))
        before = bytes_read(os.getpid())
        forget_pages(path)
        path.read_bytes()
        if bytes_read(os.getpid()) == before:
            pytest.skip("this system keeps temporary files in memory, or does not tell what is read")
        pipe: Any = fetching(gf.DiskBasedFeature(path))

        def begin_cold() -> None:
            # The system forgets no page of a file that is mapped, as a feature does once all of it is in memory.
            pipe.feature_store[KEY] = gf.DiskBasedFeature(path)
            forget_pages(path)

        judged("disk", pipe, num_workers=1, prepare=begin_cold)

    def test_a_cache_that_misses(self) -> None:
        feature = gf.cpu_cached_feature(gf.TorchBasedFeature(torch.rand(ROWS, 128)), 1 << 20)
        assert "the cache of node x" in judged("cache", fetching(feature), num_workers=1)


def fetching(feature: Any) -> gf.Datapipe:
    """Return a pipeline that fetches random rows."""
    store = gf.BasicFeatureStore({KEY: feature})
    seeds = gf.ItemSet(torch.randperm(ROWS), names="seeds")
    return gf.ItemSampler(seeds, 2_000).fetch_feature(store, node_feature_keys=["x"])


def forget_pages(path: Path) -> None:
    """Let the system read a file from the disk the next time."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
