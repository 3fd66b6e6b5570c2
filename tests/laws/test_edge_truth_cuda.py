"""Edges, times, negatives, exclusion and caches are correct in a loader with streams on a GPU.

Seeds, graph and features are on the GPU, and kernels and copies run as late as possible.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from tests.kinds.pipelines import moved
from tests.kinds.tensors import layers_of, tensor
from tests.laws import test_edge_truth as laws
from tests.stand_ins.emulated_cuda import Cuda, device_of
from tests.stand_ins.late_streams import running
from tests.unit.datapipes import test_neighbor_sampler as timed
from tests.unit.datapipes import test_seed_edges_excluder as exclusion

FEW = settings(max_examples=3)


def load(pipe: gf.Datapipe) -> list[gf.MiniBatch]:
    """Return the mini-batches of an epoch, copied to the CPU."""
    with gf.DataLoader(pipe, seed=1, overlap_graph_fetch=True) as loader:
        ahead = any(name in loader.explain() for name in ("StreamPrefetch", "IssueAhead"))
        assert ahead or not gf.find(pipe, gf.CopyTo)
        return [minibatch.to("cpu") for minibatch in loader]


def on(cuda: Cuda) -> laws.Load:
    """Return a function that runs a pipeline on the device."""

    def run(pipe: gf.Datapipe) -> list[gf.MiniBatch]:
        with running(cuda):
            return load(moved(pipe, device_of(cuda)))

    return run


@FEW
@given(laws.homogeneous(), st.lists(st.integers(-1, 8), min_size=1, max_size=3), st.booleans(), st.data())
def test_edges_and_features(
    cuda: Cuda, truth: laws.Truth, fanouts: list[int], replace: bool, data: st.DataObject
) -> None:
    seeds = laws.draw_seeds(data, truth)
    laws.check_epoch(truth, seeds, fanouts, replace, on(cuda))


@FEW
@given(laws.heterogeneous(), st.booleans(), st.data())
def test_edges_and_features_of_types(cuda: Cuda, truth: laws.Truth, replace: bool, data: st.DataObject) -> None:
    seeds, fanouts = laws.draw_seeds(data, truth), [2, [3] * len(truth.edges) if len(truth.edges) > 1 else -1]
    laws.check_epoch(truth, seeds, fanouts, replace, on(cuda))


@FEW
@given(st.one_of(laws.homogeneous(), laws.heterogeneous()), st.integers(1, 3))
def test_negatives_and_exclusion(cuda: Cuda, truth: laws.Truth, ratio: int) -> None:
    laws.check_link_epoch(truth, ratio, on(cuda))


def test_nothing_but_the_seeds_is_excluded(cuda: Cuda) -> None:
    items = gf.ItemSampler(gf.ItemSet(exclusion.ENDS.T, names="seeds"), batch_size=40)
    sampled = items.sample_neighbor(exclusion.RANDOM, [-1, 3])
    pairs = zip(on(cuda)(sampled), on(cuda)(sampled.exclude_seed_edges(True)), strict=True)
    for whole, left in pairs:
        gone = exclusion.pairs_of(whole.seeds) + exclusion.pairs_of(whole.seeds, swapped=True)
        for before, after in zip(layers_of(whole), layers_of(left), strict=True):
            assert exclusion.edges_of(after) == exclusion.without(exclusion.edges_of(before), {"_:_:_": gone})


@pytest.mark.parametrize(
    ("names", "strategy", "window", "hop_time"),
    [(("born", "time"), "uniform", 300, "seed"), ((None, "time"), "latest", None, "edge")],
)
def test_time_is_never_violated(cuda: Cuda, names: Any, strategy: Any, window: int | None, hop_time: Any) -> None:
    weights = "w" if strategy == "uniform" else None
    pipe = timed.TIMED_ITEMS.temporal_sample_neighbor(
        timed.TIMED, [5, 2], False, weights, names[0], names[1], window, hop_time, strategy
    )  # fmt: skip
    for batch in on(cuda)(pipe):
        assert timed.check_times(batch, tensor(batch.timestamp), names, window, hop_time) > 0


def test_caches_give_the_edges_and_rows_that_they_stand_for(cuda: Cuda) -> None:
    ends = laws.random_ends(np.random.default_rng(0), (60, 60), 400)
    truth = laws.Truth({laws.ONLY_EDGES: ends}, {laws.ONLY: 60})
    items = gf.ItemSampler(gf.ItemSet(torch.arange(60), names="seeds"), batch_size=13, shuffle=True)
    with running(cuda):
        store = truth.features()
        cached = {key: gf.gpu_cached_feature(store[key], 600, device_of(cuda)) for key in store.keys()}  # noqa: SIM118
        graph = truth.graph().pin_memory_()
        sampled = items.copy_to(device_of(cuda)).sample_neighbor(graph, [4, 3])
        pipe = sampled.fetch_feature(gf.BasicFeatureStore(cached), ["code"], ["code"])
        batches = [*load(pipe), *load(pipe)]
        assert all(0 < feature.miss_rate < 1 for feature in cached.values())
    for batch in batches:
        laws.check_batch(truth, batch, [4, 3])
