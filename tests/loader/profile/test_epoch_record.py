import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.profile.epoch_record import Counters, bytes_read
from tests.loader.profile.records import make_record


@pytest.mark.parametrize(
    "minibatch",
    [
        gf.MiniBatch(seeds=torch.arange(4), node_features={"x": torch.zeros(4, 2)}),
        gf.MiniBatch(seeds=torch.arange(4), edge_features=[{("a:b:c", "x"): torch.zeros(4, 2)}]),
        {"seeds": torch.arange(4), "x": [torch.zeros(4, 2)]},
        SimpleNamespace(to_dict=lambda: {"seeds": torch.arange(4), "x": torch.zeros(4, 2)}),
    ],
)
def test_the_bytes_of_any_mini_batch_are_counted(minibatch: Any) -> None:
    record = make_record(1)
    record.count_bytes(minibatch)
    assert record.sizes == [32 + 32]


def test_rows_are_counted_by_the_name_of_the_feature() -> None:
    record = make_record(1)
    record.count_bytes(
        gf.MiniBatch(node_features={("user", "x"): torch.zeros(3, 2)}, edge_features=[{"w": torch.zeros(5)}])
    )
    assert record.rows == {"user/x": [(3, 24)], "w": [(5, 20)]}


@pytest.mark.parametrize("minibatch", [None, 3, object(), gf.MiniBatch()])
def test_what_has_no_tensors_has_no_bytes(minibatch: Any) -> None:
    record = make_record(1)
    record.count_bytes(minibatch)
    assert record.sizes == [0]


def test_counters_are_those_of_the_pipelines_caches_and_the_executors_workers() -> None:
    feature = gf.cpu_cached_feature(gf.TorchBasedFeature(torch.rand(10, 4)), 1 << 20)
    store = gf.BasicFeatureStore({("node", None, "x"): feature})
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2).fetch_feature(store, node_feature_keys=["x"])
    feature.read(torch.tensor([1, 1]))
    counters = Counters.now(pipe, SimpleNamespace(pids=lambda: [os.getpid()], num_replaced=3))
    (counts,) = counters.caches.values()
    assert sum(counts) == 2
    assert counters.num_replaced == 3


def test_a_process_that_is_gone_has_read_nothing(tmp_path: Path) -> None:
    assert bytes_read(2**22 + 1) == 0
