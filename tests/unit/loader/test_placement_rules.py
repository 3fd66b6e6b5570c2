"""Placement of stages. The tests of processes apply to any executor that is not a thread pool."""

import threading
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import InThreads, InWorkers, LoaderOptions, make_plan
from tests.kinds import pipelines
from tests.kinds.pipelines import seeds
from tests.unit.loader.test_rules import PROCESSES, THREADS, AtHome, ReadsAnywhere, ReadsShared, Work, names

LOCK = threading.Lock()
AUTO, WORKER, MAIN = gf.Placement.AUTO, gf.Placement.WORKER, gf.Placement.MAIN


class Holds(gf.Transform):
    value: Any


def in_workers(pipe: gf.Datapipe, options: LoaderOptions) -> list[str]:
    """Return the stages that workers run."""
    found = gf.find(make_plan(pipe, options).running, InWorkers)
    return [name for part in found for name in names(part) if name not in ("ItemSampler", "ByIndex", "InWorkers")]


def fetched(**options: Any) -> gf.Datapipe:
    return ReadsShared(Work(seeds()), answer=True, **options)


def test_stages_behind_a_fetch_take_it_into_worker_processes() -> None:
    behind = Work(ReadsShared(Work(seeds()), answer=True))
    assert in_workers(behind, PROCESSES) == ["Work", "ReadsShared", "Work"]
    assert "fetch_in_workers" in make_plan(behind, PROCESSES).explain()
    twice = Work(ReadsShared(behind, answer=True))
    assert in_workers(twice, PROCESSES) == ["Work", "ReadsShared", "Work", "ReadsShared", "Work"]
    assert in_workers(Work(fetched().copy_to("cpu")), PROCESSES) == ["Work", "ReadsShared", "CopyTo", "Work"]
    assert in_workers(Work(fetched()).copy_to("cuda"), PROCESSES) == ["Work", "ReadsShared", "Work"]


ELSE = [
    fetched(),
    fetched().copy_to("cpu"),
    AtHome(fetched()),
    Work(AtHome(fetched())),
    Work(ReadsShared(Work(seeds()), answer=False)),
    Work(ReadsAnywhere(Work(seeds()), answer=True)),
    Holds(fetched(), LOCK),
    Work(Holds(fetched(), LOCK)),
    Work(fetched()).changed(runs_in=MAIN),
    Work(fetched().changed(runs_in=MAIN)),
]


def test_else_the_main_process_fetches_beside_processes() -> None:
    for pipe in ELSE:
        assert in_workers(pipe, PROCESSES) == ["Work"], pipe


def test_a_fetch_that_must_stay_in_the_main_process_has_no_threads() -> None:
    planned = make_plan(fetched().changed(runs_in=MAIN), PROCESSES).running
    assert gf.find(planned, InThreads) == []
    assert in_workers(fetched().changed(runs_in=MAIN), THREADS) == ["Work"]


def test_a_stage_that_must_run_in_workers_takes_the_fetch_along_even_if_it_is_refused_later() -> None:
    assert in_workers(Holds(fetched(), LOCK).changed(runs_in=WORKER), PROCESSES) == ["Work", "ReadsShared", "Holds"]


def test_a_fetch_that_must_run_in_workers_does() -> None:
    planned = make_plan(fetched().changed(runs_in=WORKER), PROCESSES).running
    assert names(planned) == ["ItemSampler", "ByIndex", "Work", "ReadsShared", "InWorkers"]


@pytest.mark.parametrize("options", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_a_copy_that_moves_nothing_leaves_stages_with_workers(options: LoaderOptions) -> None:
    first = seeds().copy_to("cpu")
    assert in_workers(Work(first), options) == ["CopyTo", "Work"]
    assert in_workers(AtHome(Work(first)), options) == ["CopyTo", "Work"]
    assert in_workers(Work(Work(first).copy_to("cpu")), options) == ["CopyTo", "Work", "CopyTo", "Work"]
    text = make_plan(Work(first), options).explain()
    assert "pass_idle_copies    A copy to the device that mini-batches are already on runs where" in text
    assert in_workers(Work(seeds().copy_to("meta")), options) == []
    assert in_workers(Work(first.changed(runs_in=MAIN)), options) == []
    assert in_workers(AtHome(seeds()).copy_to("cpu"), options) == []


@pytest.mark.parametrize("options", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_a_copy_before_the_sampler_leaves_the_workers_their_work(options: LoaderOptions) -> None:
    planned = in_workers(pipelines.with_items(pipelines.homogeneous(), lambda items: items.copy_to("cpu")), options)
    assert planned == (
        ["CopyTo", "NeighborSampler", "FeatureFetcher"] if options is THREADS else ["CopyTo", "NeighborSampler"]
    )


def test_where_stages_run_is_no_part_of_what_they_make() -> None:
    class Stays(gf.Transform):
        runs_in: gf.Placement = MAIN

    loaders = [gf.DataLoader(Stays(seeds(), place), num_workers=0, seed=0) for place in gf.Placement]
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] == states[2]
    assert in_workers(Stays(seeds()), THREADS) == []
    assert in_workers(Stays(seeds(), WORKER), THREADS) == ["Stays"]


def test_only_features_that_processes_share_are_read_in_processes() -> None:
    class Own(gf.Feature):
        def may_read_in_threads(self) -> bool:
            return True

        def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
            assert ids is not None
            return ids[:, None]

        def size(self) -> torch.Size:
            return torch.Size([1])

        def count(self) -> int:
            return 300

        def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
            raise NotImplementedError

    key = ("node", None, "feat")
    for feature, shared in ((gf.TorchBasedFeature(torch.ones(300, 1)), True), (Own(), False)):
        fetch: Any = seeds().fetch_feature(gf.BasicFeatureStore({key: feature}), ["feat"])
        assert fetch.may_run_in_threads()
        assert fetch.may_run_in_processes() is shared


def test_servers_have_a_short_form_and_their_former_options_still_work_with_a_warning() -> None:
    make: Any = gf.DataLoader
    with pytest.warns(DeprecationWarning, match=r"token, patience of .* SamplingServers") as caught:
        former = make(pipelines.homogeneous(), servers=("10.0.0.2:50051",), patience=5.0, token="t", seed=0)
    assert [warning.filename for warning in caught] == [__file__]
    assert former._options.timeout_seconds == 2 * 600 + 5
    with pytest.warns(DeprecationWarning, match="tls_root_certs"):
        assert make(pipelines.homogeneous(), servers=[], tls_root_certs=b"x")._executor is None
    short = make(pipelines.homogeneous(), servers=(address for address in ["10.0.0.2:50051"]), seed=0)
    whole = make(pipelines.homogeneous(), executor=gf.SamplingServers(["10.0.0.2:50051"]), seed=0)
    assert repr(short) == repr(whole) == repr(former)
    assert short.explain() == whole.explain() == former.explain()


def test_servers_run_what_workers_would_and_the_plan_says_so() -> None:
    loader = gf.DataLoader(
        pipelines.homogeneous(), executor=gf.SamplingServers(["10.0.0.2:50051", "10.0.0.3:50051"], token="t"), seed=0
    )
    text = loader.explain()
    assert "InWorkers(num_workers=8, in_flight=16, servers=['10.0.0.2:50051', '10.0.0.3:50051'])" in text
    assert [line.split()[0] for line in text.splitlines()[2:6]] == ["server"] * 4
    assert "Sampling servers have the pipeline, so they run the stages before the cut" in text
    assert "server: ItemSampler -> NeighborSampler -> FeatureFetcher" in repr(loader)
