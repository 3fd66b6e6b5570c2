"""The first law on a GPU: every pipeline, its seeds, graphs and features there, makes the mini-batches of the CPU."""

from contextlib import nullcontext
from typing import Any

import graphfeed as gf
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests import pipelines
from tests.digests import assert_same, digest, digests
from tests.loader.late_streams import late_streams
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of


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


def test_a_minibatch_is_that_of_the_cpu_and_lies_there(cuda: Cuda) -> None:
    for build in pipelines.ALL:
        with cuda.running():
            found = next(iter(moved(build(), device_of(cuda)).with_seed(1)))
            assert all(map(cuda.is_there, tensors_in(vars(found)))), build.__name__
        assert_same(found, next(iter(build().with_seed(1))))


def test_minibatches_are_those_of_the_cpu_through_a_loader_and_its_streams(cuda: Cuda) -> None:
    for build in pipelines.ALL:
        expected = digests(build().with_seed(1))
        with (
            cuda.running(),
            late_streams() if isinstance(cuda, EmulatedCuda) else nullcontext(),
            gf.DataLoader(moved(build(), device_of(cuda)), seed=1, overlap_graph_fetch=True) as loader,
        ):
            assert [digest(minibatch.to("cpu")) for minibatch in loader] == expected, build.__name__
