"""The first law on a GPU: every pipeline, its seeds, graphs and features there, makes the mini-batches of the CPU."""

from collections.abc import Callable
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests import pipelines
from tests.digests import assert_same, digests
from tests.ops.emulated_cuda import Cuda, device_of

Build = Callable[[], gf.Datapipe]


def moved(pipe: gf.Datapipe, device: str) -> gf.Datapipe:
    """Return a pipeline whose mini-batches are made on a device from the item sampler on."""
    for stage in reversed(gf.find(pipe, gf.Datapipe)):  # those after a stage that was replaced are new ones
        fields = {}
        if isinstance(getattr(stage, "graph", None), gf.FusedCSCSamplingGraph):
            fields["graph"] = stage.graph.to(device)  # type: ignore[attr-defined]
        if isinstance(stage, gf.FeatureFetcher):
            store: Any = stage.feature_store
            fields["feature_store"] = gf.BasicFeatureStore({key: store[key].to(device) for key in store.keys()})  # noqa: SIM118
        if isinstance(stage, gf.CopyTo):
            fields["device"] = device
        new = stage.copy_to(device) if isinstance(stage, gf.ItemSampler) else stage.changed(**fields)
        pipe = gf.replace(pipe, stage, new)
    return pipe


@pytest.mark.parametrize("build", pipelines.ALL)
def test_minibatches_are_those_of_the_cpu(cuda: Cuda, build: Build) -> None:
    expected = list(build().with_seed(1))
    with cuda.running():
        found = list(moved(build(), device_of(cuda)).with_seed(1))
        assert all(map(cuda.is_there, tensors_in(vars(found[0]))))
    assert_same(found[0], expected[0])
    assert digests(found) == digests(expected)
