"""Errors of a loader: options, states, seeds, stages that can't run where they are, items that can't be sent."""

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader import LoaderOptions, make_plan
from tests.kinds import pipelines
from tests.kinds.pipelines import seeds
from tests.kinds.refusals import Refusal, check_refused
from tests.unit.loader.test_rules import PROCESSES, THREADS, AtHome, ReadsShared, Work, on_a_gpu

LOADER: Any = gf.DataLoader
POOL = ThreadPoolExecutor(1)
ADDRESS = "10.0.0.2:50051"
SERVERS = gf.SamplingServers([ADDRESS])


def call(function: Callable[..., object], *arguments: Any, **options: Any) -> Callable[[], object]:
    return lambda: function(*arguments, **options)


def with_options(**options: Any) -> Callable[[], object]:
    return call(LOADER, pipelines.homogeneous(), **options)


OPTIONS: list[Refusal] = [
    (lambda: LOADER([1, 2]), TypeError, "must be a pipeline of stages, but is a list; begin with an ItemSampler"),
    (with_options(shuffle=True), TypeError, r"DataLoader\(\) has no argument 'shuffle'; give it to the ItemSampler"),
    (with_options(num_workers=-1), ValueError, "num_workers must be 0 or more, but is -1"),
    (with_options(num_workers=1.5), TypeError, "num_workers must be an integer, but is 1.5"),
    (with_options(num_workers="many"), TypeError, "num_workers must be an integer, but is 'many'"),
    (with_options(worker="greenlet"), ValueError, "worker must be 'thread' or 'process', but is 'greenlet'"),
    (call(gf.SamplingServers, ["a:1"], patience=-1.0), ValueError, "patience must be more than 0 seconds, but is -1"),
    (call(gf.SamplingServers, []), ValueError, "addresses must name a server, but is empty"),
    (call(gf.SamplingServers, ["a:1", 5]), TypeError, "servers must be a list of addresses"),
    (with_options(window=-1), ValueError, "window must be 0 or more, but is -1"),
    (with_options(memory_limit="much"), ValueError, "memory_limit must be a number of bytes"),
    (with_options(executor=3), TypeError, "executor must be an executor with submit"),
    (with_options(executor=POOL, num_workers=0), ValueError, "leave one of them out"),
    (with_options(prefetch_factor=0), ValueError, "prefetch_factor must be 1 or more, but is 0"),
    (with_options(timeout=0), ValueError, "timeout must be more than 0 seconds, but is 0"),
    (with_options(timeout=float("nan")), ValueError, "timeout must be more than 0 seconds, but is nan"),
    (with_options(max_uva_threads=0), ValueError, "max_uva_threads must be 1 or more, but is 0"),
    (with_options(servers=[ADDRESS], num_workers=0), ValueError, "servers replace workers"),
    (lambda: with_options(servers=iter([ADDRESS]), num_workers=0)(), ValueError, "servers replace workers"),
    (with_options(executor=SERVERS, worker="process"), ValueError, "servers replace workers"),
    (with_options(servers=[ADDRESS], executor=POOL), ValueError, "servers replace workers"),
    (with_options(servers=ADDRESS), TypeError, r"servers must be a list of addresses such as '10\.0\.0\.2:50051'"),
]


def load(state: Any, **options: Any) -> Callable[[], object]:
    return lambda: LOADER(pipelines.shuffled(), num_workers=0, **options).load_state_dict(state)


def states() -> Iterator[Refusal]:
    """Yield invalid states, and states of other loaders."""
    ints = "state_dict must contain the integers seed, epoch and index"
    state = LOADER(pipelines.shuffled(), num_workers=0, seed=1).state_dict()
    for wrong in ({}, {"seed": 1, "epoch": 0}, {"seed": 1, "epoch": 0, "index": 0, "more": 1}):
        yield load(wrong), ValueError, ints
    for change, words in (
        ({"index": "2"}, ints),
        ({"index": True}, f"{ints}, but is {{.*True"),
        ({"seed": 1.5}, f"{ints}, but is {{'seed': 1.5"),
        ({"seed": torch.zeros(10**6)}, "must contain the integers .* but is {'seed': a Tensor of shape"),
        ({"ranks": "2"}, f"{ints}, but is .*'ranks': '2'"),
        ({"ranks": 0}, "ranks of state_dict must be 1 or more, but is 0"),
        ({"epoch": -1}, "epoch of state_dict must be 0 or more, but is -1"),
        ({"index": -1}, "index of state_dict must be 0 or more, but is -1"),
        ({"index": 10**9}, r"index of state_dict is 1000000000, but an epoch has \d+ mini-batches"),
        ({"seed": 2}, "of seed 2, but this loader was given seed 1"),
    ):
        yield load({**state, **change}, seed=1), ValueError, words
    fingerprints: list[Any] = [None, "text", ["1 ItemSampler"], {"ItemSampler": {}}, {"1 ItemSampler": None}]
    for fingerprint in fingerprints:
        words = "fingerprint of state_dict must be a dict of stages.*; remove"
        yield load({**state, "fingerprint": fingerprint}, seed=1), ValueError, words
    for value in (None, 5, [1, 2], "state"):
        yield load(value), TypeError, "state_dict must be a dict, as state_dict"


def whole_numbers() -> Iterator[Refusal]:
    """Yield invalid seeds and epochs."""
    items: Any = gf.ItemSet(10, names="seeds")
    pipe, graph = pipelines.shuffled(), gf.from_coo(([0, 1], [1, 0]), 2)
    layer = partial(graph.sample_layer_neighbors, torch.tensor([0]), torch.tensor([1]))
    ranked = partial(gf.DistributedItemSampler, items, 2, rank=0, world_size=1)
    numbers: list[tuple[Any, str]] = [
        (1.5, "is 1.5"),
        ("3", "is '3'"),
        (3.0, "is 3.0"),
        (np.float64(3), r"is np.float64\(3.0\)"),
        (torch.Generator(), r"is a (torch.)?Generator; give its initial_seed\(\)"),
        (torch.tensor([1, 2]), r"is tensor\(\[1, 2\]\)"),
        ([3], r"is \[3\]"),
    ]
    for given, text in numbers:
        words = f"^seed must be an integer, but {text}"
        yield call(LOADER, pipe, num_workers=0, seed=given), TypeError, words
        yield call(gf.ItemSampler, items, 2, seed=given), TypeError, words
        yield (
            call(ranked, seed=given),
            TypeError,
            words,
        )
        yield call(pipe.with_seed, given), TypeError, words
        yield call(gf.seed, given), TypeError, f"^val must be an integer, but {text}"
        yield call(layer, random_seed=[given]), TypeError, "^random_seed must "
    for seed in (2**64, -(2**63) - 1):
        words = rf"seed must be in -2\*\*63 .. 2\*\*64 - 1, but is {seed}"
        yield call(LOADER, pipe, seed=seed), ValueError, words
        yield call(gf.ItemSampler, items, 2, seed=seed), ValueError, words
    for given, error in ((-1, ValueError), (1.5, TypeError), ("1", TypeError)):
        yield call(LOADER(pipe, num_workers=0).set_epoch, given), error, "^epoch must be "
        yield call(pipe.with_seed, 0, given), error, "^epoch must be "
        yield call(pipe.with_seed, 0, 0, given), error, "^start must be "


WORKER = gf.Placement.WORKER


def plan(pipe: gf.Datapipe, options: LoaderOptions = THREADS) -> Callable[[], object]:
    return lambda: make_plan(pipe, options)


def loop_in_workers() -> type[gf.Transform]:
    class Loop(gf.Transform, runs_in=WORKER):
        def __iter__(self) -> Iterator[Any]:
            yield from self.datapipe

    return Loop


def places() -> Iterator[Refusal]:
    """Yield stages that can't run where they are."""
    behind = r"runs_in of Work is Placement.WORKER, but AtHome before it .*; leave .* or put Work before"
    yield plan(Work(AtHome(Work(seeds()))).changed(runs_in=WORKER)), ValueError, behind
    local = Work(ReadsShared(AtHome(seeds()), answer=False)).changed(runs_in=WORKER)
    yield plan(local), ValueError, behind
    fetched = Work(ReadsShared(Work(seeds()), answer=False)).changed(runs_in=WORKER)
    yield plan(fetched, PROCESSES), ValueError, "but ReadsShared before it runs in the main process"
    words = r"runs_in of Work must be graphfeed.Placement.AUTO, .* but is 'main'"
    yield plan(Work(seeds()).changed(runs_in="main")), TypeError, words
    yield loop_in_workers, TypeError, r"runs_in of Loop is Placement.WORKER, but workers don't use its __iter__"
    for options in (THREADS, PROCESSES):
        words = (
            r"num_workers is 2, but copy_to\('cuda'\) comes before Samples: .* Use num_workers=0 .*, or move copy_to "
            "after"
        )
        yield plan(on_a_gpu(), options), ValueError, words
    sampler = pipelines.sampler_of(pipelines.homogeneous())
    there = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph, [2])
    for given in ({"num_workers": 2}, {"worker": "process"}, {"executor": POOL}):
        words = "Use num_workers=0 to sample on the device, or move copy_to after"
        yield call(LOADER, there, **given), ValueError, words


@pytest.mark.parametrize("table", [lambda: OPTIONS, states, whole_numbers, places])
def test_a_loader_says_what_it_refuses(table: Callable[[], Any]) -> None:
    check_refused(table())


def test_a_state_that_is_refused_changes_nothing() -> None:
    with LOADER(pipelines.shuffled(), num_workers=0, seed=1) as loader:
        state = loader.state_dict()
        with pytest.raises(ValueError, match="index of state_dict must be 0 or more"):
            loader.load_state_dict({**state, "index": -1})
        assert loader.state_dict() == state


def compute(minibatch: Any) -> Any:
    minibatch.labels = torch.ones(2, requires_grad=True) * 2
    return minibatch


def test_a_tensor_that_requires_gradients_reaches_the_loop_or_an_error_says_that_it_can_not() -> None:
    def loader_of(items: gf.ItemSet, stage: Any, worker: str) -> Any:
        return LOADER(gf.ItemSampler(items, 2).transform(stage), num_workers=1, worker=worker)

    with loader_of(gf.ItemSet(4, names="seeds"), compute, "thread") as loader:
        assert all(batch.labels.requires_grad for batch in loader)
    rows: list[Refusal] = []
    with loader_of(gf.ItemSet(4, names="seeds"), compute, "process") as computing:
        words = "computed from others that require gradients.*compute it after the workers"
        rows.append((lambda: list(computing), ValueError, words))
        for count in (4, 100_000):
            labels = torch.ones(count, requires_grad=True)
            items = gf.ItemSet((torch.arange(count), labels), names=("seeds", "labels"))
            words = rf"ItemSampler, .* a tensor of shape \({count},\) in ItemSet requires"
            loader = loader_of(items, None, "process")
            rows.append((call(list, loader), pickle.PicklingError, words))
        check_refused(rows)
    assert items[torch.tensor([0])][1].requires_grad
