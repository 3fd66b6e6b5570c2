"""Features stay codes until they are on a GPU, or have arrived from a server."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import SamplingServer, SamplingServers
from graphfeed.loader import make_plan
from tests.kinds.pipelines import seeds
from tests.stand_ins.emulated_cuda import Cuda, check_equal
from tests.stand_ins.served import TOKEN
from tests.unit.loader.test_rules import PROCESSES, THREADS, Work, names

ROWS = {"float": torch.randn(60, 9), "bytes": torch.randn(60, 9), "nibbles": torch.randn(60, 7)}
BITS: dict[str, Any] = {"bytes": 8, "nibbles": 4, "halves": torch.float16}


def features(factor: float = 1.0) -> dict[str, gf.Feature]:
    plain = gf.TorchBasedFeature(ROWS["float"])
    encoded = {
        name: gf.TorchBasedFeature(factor * ROWS.get(name, ROWS["float"])).encode(bits) for name, bits in BITS.items()
    }
    return {"float": plain, **encoded}


def fetched(before: Any, factor: float = 1.0) -> Any:
    """Return a pipeline that fetches all features of nodes, and some of the edges of seeds."""
    store = gf.BasicFeatureStore(
        {(domain, None, name): own for domain in ("node", "edge") for name, own in features(factor).items()}
    )
    return before.fetch_feature(store, ["float", *BITS], seed_edge_feature_keys=["bytes"])


def items() -> Any:
    ids = torch.arange(60)
    return gf.ItemSampler(gf.ItemSet((ids, ids.flip(0)), names=("seeds", "seed_edge_ids")), 7, shuffle=True)


def check_rows(minibatch: Any, cuda: Cuda | None = None) -> None:
    def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
        if cuda is not None:
            check_equal(cuda, found, wanted)
        assert cuda is not None or torch.equal(found, wanted)

    ids = minibatch.seeds.cpu()
    for name, feature in features().items():
        same(minibatch.node_features[name], feature.read(ids))
    same(minibatch.seed_edge_features["bytes"], features()["bytes"].read(59 - ids))


class Doubled(gf.FeatureFetcher):
    """Changes the rows that it reads."""

    def read(self, *args: Any) -> Any:
        return {name: 2 * rows for name, rows in super().read(*args).items()}


class Shifted(gf.EncodedFeature):
    """Has a mean that was taken out before the rows were encoded."""

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        return super().read(ids) + 5.0


def test_a_feature_that_reads_otherwise_is_not_decoded_elsewhere() -> None:
    rows = features()["bytes"]
    assert isinstance(rows, gf.EncodedFeature)
    arrays: Any = rows.arrays()
    shifted = Shifted(rows.stored, 8, **arrays)
    store = gf.BasicFeatureStore({("node", None, "x"): shifted})
    pipe = Work(seeds()).fetch_feature(store, ["x"]).copy_to("cuda")
    assert "DecodeFeatures" not in names(make_plan(pipe, THREADS).running)
    ids = torch.tensor([3, 1, 3])
    assert torch.equal(gf.cpu_cached_feature(shifted, 1000).read(ids), rows.read(ids) + 5.0)


def test_plans_have_these_stages() -> None:
    plain = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.ones(4, 1))})
    others = Work(seeds()).fetch_feature(plain, ["x"]).copy_to("cuda")
    encoded = gf.BasicFeatureStore({("node", None, "bytes"): features()["bytes"]})
    own = Doubled(Work(seeds()), encoded, ["bytes"]).copy_to("cuda")
    for pipe, expected in (
        (fetched(Work(seeds())).copy_to("cuda"), "FeatureFetcher Pin CopyTo StreamPrefetch DecodeFeatures"),
        (Work(fetched(Work(seeds())).copy_to("cuda")), "CopyTo StreamPrefetch DecodeFeatures Work"),
        # Stages of users get rows, and a fetch alone decodes them as it gathers them.
        (Work(fetched(Work(seeds()))).copy_to("cuda"), "Work Pin CopyTo StreamPrefetch"),
        (fetched(Work(seeds()).copy_to("cuda")), "CopyTo FeatureFetcher StreamPrefetch"),
        (fetched(Work(seeds())), ""),
        (fetched(Work(seeds())).copy_to("cpu"), ""),
        (others, "CopyTo StreamPrefetch"),
        (own, "Doubled Pin CopyTo StreamPrefetch"),
    ):
        for options in (THREADS, PROCESSES):
            planned = make_plan(pipe, options)
            found = [name for name in names(planned.running) if name not in ("InWorkers", "InThreads")]
            assert found[len(found) - len(expected.split()) :] == expected.split()
            assert ("DecodeFeatures" in found) == ("DecodeFeatures" in expected)
            assert ("EncodedFeature(" in planned.explain()) == (pipe is not others)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_codes_are_decoded_on_a_gpu(cuda: Cuda, num_workers: int) -> None:
    with cuda.running():
        device = cuda.put(torch.ones(1)).device
        with gf.DataLoader(fetched(items()).copy_to(device), num_workers=num_workers, seed=0) as loader:
            assert "DecodeFeatures" in loader.explain()
            count = 0
            for minibatch in loader:
                check_rows(minibatch, cuda)
                count += 1
    assert count == 9


def test_servers_send_codes_of_features_that_are_the_same_here() -> None:
    with SamplingServer(fetched(items()), token=TOKEN) as server:
        servers = SamplingServers([server.address], TOKEN)
        with gf.DataLoader(fetched(items()), executor=servers, seed=0) as loader:
            assert "DecodeFeatures" in loader.explain()
            found = list(loader)
        for minibatch in found:
            check_rows(minibatch)
        with gf.DataLoader(fetched(items()), seed=0) as loader:
            assert [batch.seeds.tolist() for batch in loader] == [batch.seeds.tolist() for batch in found]
        # The same codes, of other numbers.
        with (
            gf.DataLoader(fetched(items(), 2.0), executor=servers, seed=0) as loader,
            pytest.raises(ValueError, match=r"bytes \(checksum\) of stage 2 FeatureFetcher"),
        ):
            next(iter(loader))
