"""The measurements of a profile, and how they are shown: as a verdict, a table or a bar."""

import copy
import gc
import json
import re
import sys
import time
import weakref
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import traverse
from graphfeed.loader.profile import Profile
from tests.kinds import pipelines
from tests.kinds.digests import digests
from tests.kinds.refusals import Refusal, check_refused

COUNT = 40


class Sleep(gf.Transform):
    """Sleeps, which uses no core."""

    seconds: float

    def __call__(self, minibatch: Any) -> Any:
        time.sleep(self.seconds)
        return minibatch


def items(count: int = COUNT) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


def test_a_profile_changes_no_mini_batch_and_sees_all_stages() -> None:
    expected = digests(gf.DataLoader(pipelines.homogeneous(), num_workers=0, seed=3))
    every = set(range(len(expected)))
    options: dict[str, Any]
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}):
        with gf.DataLoader(pipelines.homogeneous(), seed=3, **options) as loader, loader.profile() as profile:
            assert digests(loader) == expected
        (record,) = profile.records
        calls: dict[str, set[int]] = {}
        for span in record.spans:
            if not span.side and span.minibatch >= 0:
                calls.setdefault(span.name, set()).add(span.minibatch)
        assert calls == {row.name: every for row in record.setting.stages}
        assert len(record.handovers) == len(expected)
        assert len({span.process for span in record.spans}) == (2 if options.get("worker") == "process" else 1)


def test_mini_batches_that_workers_are_sent_are_measured_too() -> None:
    for of_user, expected in ((gf.MiniBatch(), [*range(8)]), ("anything without a key", [-1] * 8)):
        given: Any = [copy.copy(of_user) for _ in range(8)]
        with gf.DataLoader(gf.MiniBatchTransformer(given), num_workers=2) as loader, loader.profile() as profile:
            assert len(list(loader)) == 8
        assert sorted(trip.minibatch for trip in profile.records[0].trips) == expected


def test_a_loader_measures_within_a_block_or_where_each_epoch_is_asked_for() -> None:
    plain = gf.DataLoader(items(), num_workers=0)
    with plain.profile() as profile:
        list(plain)
    list(plain)
    assert len(profile.records) == 1
    with gf.DataLoader(items(), num_workers=1, profile=True) as loader:
        assert loader.profiled is None
        list(loader)
        first = loader.profiled
        list(loader)
        assert first is not None
        assert loader.profiled is not None
        assert loader.profiled is not first
        assert [len(profile.records) for profile in (first, loader.profiled)] == [1, 1]


def test_a_profile_keeps_neither_the_pipeline_nor_the_workers_alive() -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers=1, worker="process", persistent_workers=False)
    with loader.profile() as profile:
        list(loader)
    stages = [weakref.ref(stage) for stage in traverse(loader.plan.running)]
    del loader
    gc.collect()
    assert len(profile.records) == 1
    assert [stage() for stage in stages] == [None] * len(stages)


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


def test_nothing_measured_says_so_and_makes_no_trace(tmp_path: Path) -> None:
    loader = gf.DataLoader(items(), num_workers=0)
    with loader.profile() as profile:
        rows: list[Refusal] = [
            (lambda: loader.profile().__enter__(), RuntimeError, "being measured in another block"),
            (lambda: Profile().to_chrome_trace(tmp_path / "trace.json"), ValueError, "nothing was measured"),
        ]
        check_refused(rows)
    assert str(profile) == "no mini-batch was yielded"
    assert profile._repr_html_() == "<pre>no mini-batch was yielded</pre>"
    assert profile.to_dict() == {"verdict": {"cause": "too few", "text": "no mini-batch was yielded", "gain": 1.0}}


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


def test_a_bar_has_the_epoch_the_count_and_how_much_the_loop_waits(capsys: pytest.CaptureFixture[str]) -> None:
    loader = gf.DataLoader(items(12), num_workers=0, progress=True, seed=0)
    assert len(list(loader)) == len(list(loader)) == 12
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"epoch 1: 100%.* 12/12 .*batch/s, waits \d+ %", err)
    list(islice(loader, 5))
    with gf.DataLoader(items(12), num_workers=2, progress=True) as resumed:
        resumed.load_state_dict(loader.state_dict())
        capsys.readouterr()
        assert len(list(resumed)) == 7
        err = capsys.readouterr().err
    assert ("5/12" in err, "12/12" in err) == (True, True)
    pipe = gf.MiniBatchTransformer(iter([gf.MiniBatch()] * 3))  # type: ignore[arg-type]
    assert len(list(gf.DataLoader(pipe, num_workers=0, progress=True))) == 3
    assert "3batch" in capsys.readouterr().err, "without a length"


def test_other_ranks_than_the_first_show_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        source = gf.DistributedItemSampler(gf.ItemSet(4, names="seeds"), 1, rank=rank, world_size=2, seed=0)
        list(gf.DataLoader(source, num_workers=0, progress=True))
        assert ("2/2" in capsys.readouterr().err) == (rank == 0)


def test_without_tqdm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm"):
        next(iter(gf.DataLoader(items(2), num_workers=0, progress=True)))
