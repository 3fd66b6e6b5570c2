"""Rules for windows: which rows are read ahead, and which mini-batches are sampled together."""

import os
import pickle
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader import ReadAhead, SampleTogether, bytes_text
from graphfeed.loader.rules import MemoryBudget
from graphfeed.storage.features import PlannedRows
from graphfeed.storage.graph import SamplingRequest, Way
from graphfeed.storage.memory import tensors_in
from graphfeed.testing import limits
from tests.contracts.test_inserted import graph
from tests.kinds.digests import digest, digests
from tests.kinds.pipelines import with_items
from tests.stand_ins.emulated_cuda import Cuda, device_of
from tests.stand_ins.late_streams import running

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

NODES, SIZE = 400, 400 * 16 * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "feat.npy", np.random.default_rng(0).random((NODES, 16), np.float32))
    return tmp_path / "feat.npy"


def pipe_of(feature: gf.Feature | Path) -> gf.Datapipe:
    if isinstance(feature, Path):
        feature = gf.DiskBasedFeature(feature)
    rows = gf.TorchBasedFeature(torch.arange(NODES)[:, None])
    store = gf.BasicFeatureStore({("node", None, "feat"): feature, ("edge", None, "feat"): rows})
    pipe = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=16, shuffle=True)
    return pipe.sample_neighbor(graph(NODES), fanouts=[2, 2]).fetch_feature(store, node_feature_keys=["feat"])


def behind_a_copy(feature: gf.Feature, device: str) -> Any:
    fetch: Any = pipe_of(feature)
    return fetch.changed(datapipe=gf.CopyTo(fetch.datapipe, device))


def windows(pipe: gf.Datapipe, **options: Any) -> list[Any]:
    running = gf.DataLoader(pipe, **options).plan.running
    together: list[Any] = find(running, SampleTogether)
    # Graphs in memory are sampled together, too.
    return [*find(running, ReadAhead), *(stage for stage in together if not way_of(stage.datapipe).at_once)]


def way_of(sampler: Any) -> Way:
    return sampler.graph.way(sampler.request)  # type: ignore[no-any-return]


def test_files_larger_than_the_limit_or_a_third_of_the_free_memory_are_read_in_windows(path: Path) -> None:
    for options, count in (({}, 0), ({"memory_limit": SIZE}, 0), ({"memory_limit": SIZE - 1, "window": 0}, 0)):
        assert len(windows(pipe_of(path), **options)) == count
    (stage,) = windows(pipe_of(path), memory_limit=SIZE - 1)
    assert stage.max_size_in_bytes <= SIZE - 1
    assert "fetch_in_windows" in gf.DataLoader(pipe_of(path), memory_limit=SIZE - 1).explain()
    # With 100 bytes, too little for the bookkeeping, nothing is read ahead, except on request.
    for free, count in ((3 * SIZE, 0), (3 * SIZE - 4, 1), (100, 0)):
        with limits(memory_bytes=free):
            assert len(windows(pipe_of(path))) == count


def test_each_process_reads_its_own_available_memory() -> None:
    here = MemoryBudget()
    with limits(memory_bytes=300):
        assert here.for_rows() == 100
    there = pickle.loads(pickle.dumps((here, MemoryBudget(50))))
    with limits(memory_bytes=600):
        assert [own.for_rows() for own in (here, *there)] == [100, 200, 50]


def test_a_window_is_used_where_one_is_asked_for(path: Path) -> None:
    (stage,) = windows(pipe_of(path), window=4, num_workers=0)
    assert stage.window == 4
    with pytest.raises(
        ValueError,
        match=r"ahead may take 75 bytes, but .* take 2204; give the DataLoader a larger memory_limit, or window=0",
    ):
        next(iter(gf.DataLoader(pipe_of(path), window=4, memory_limit=100)))


def test_a_cache_in_memory_gives_way_and_other_features_are_left_alone(path: Path) -> None:
    feature = gf.DiskBasedFeature(path)
    cached = gf.cpu_cached_feature(feature, 10_000)
    (stage,) = windows(pipe_of(cached), window=4)
    assert list(stage.sources.values()) == [feature]
    assert windows(pipe_of(feature.read_into_memory()), window=4) == []
    assert windows(pipe_of(path).copy_to("cuda:0"), window=4, num_workers=0) != []
    assert windows(behind_a_copy(feature, "cuda:0"), window=4) != []
    assert windows(behind_a_copy(feature, "cuda:0"), window=4, overlap_feature_fetch=False) == []
    assert windows(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2), window=4) == []


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 3, "window": 5, "memory_limit": 20_000},
        pytest.param({"num_workers": 2, "worker": "process"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_bits_are_the_same(path: Path, options: dict[str, Any]) -> None:
    pipe = pipe_of(path)
    expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3, window=0))
    with gf.DataLoader(pipe, seed=3, **{"window": 8, **options}) as loader:
        assert digests(loader) == expected
        state = None
        for number, _ in enumerate(loader):
            if number == 10:
                state = loader.state_dict()
                break
        assert state is not None
        rest = list(loader)  # the epoch after the one that was left
        loader.load_state_dict(state)
        resumed = digests(loader)
    with gf.DataLoader(pipe, num_workers=0, seed=3, window=0) as plain:
        plain.set_epoch(1)
        assert resumed == digests(plain)[11:]
        assert digests(rest) == digests(plain)


@pytest.mark.slow
def test_a_worker_process_that_is_killed_changes_no_window(path: Path) -> None:
    expected = digests(gf.DataLoader(pipe_of(path), num_workers=0, seed=3, window=0))
    with gf.DataLoader(pipe_of(path), num_workers=2, worker="process", window=4, seed=3) as loader:
        found = []
        for number, minibatch in enumerate(loader):
            found.append(digest(minibatch))
            if number in (0, 9):
                os.kill(loader._workers.pool.pids()[0], signal.SIGKILL)  # type: ignore[union-attr]
    assert found == expected


def test_an_epoch_explains_how_its_rows_were_read(path: Path) -> None:
    with gf.DataLoader(pipe_of(path), num_workers=0, window=8, seed=0) as loader:
        list(loader)
        ((_, rows),) = loader.list_caches()
        assert isinstance(rows, PlannedRows)
        lines = loader.explain().splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.endswith("misses; node feat")]
    # 1, 2, 4, 8, 8 and 2 mini-batches. All rows fit into memory, so each was read once.
    assert lines[number + 1 : number + 4] == [
        "    25 mini-batches in 6 windows, so 4.2 per window; 400 rows read, 1.00 times the minimum for these windows "
        "and this memory",
        f"    {rows.counts.reads} reads of {bytes_text(rows.counts.num_bytes / rows.counts.reads)} on average, "
        f"{100 - 100 * SIZE / rows.counts.num_bytes:.0f} % of it between rows: gaps of up to 33 kB between two rows "
        "are read as well, which takes no longer than a second read on a typical disk",
        f"    {rows.counts.seconds:.2f} s were spent waiting for the disk",
    ]
    assert rows.counts.seconds > 0


def test_rows_stay_for_the_next_epoch_of_the_loader_alone(path: Path) -> None:
    pipe = pipe_of(path)
    with gf.DataLoader(pipe, 0, window=8) as loader, gf.DataLoader(pipe, 0, window=8) as other:
        first, second = ((len(list(loader)), loader.list_caches()) for _ in range(2))
        assert first == second
        ((_, rows),) = second[1]
        assert rows.misses == NODES
        assert pickle.loads(pickle.dumps(loader)).list_caches() == other.list_caches() == []


def test_ranks_of_a_machine_read_one_file_in_half_of_the_memory_each(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = digests(gf.DataLoader(pipe_of(path), num_workers=0, seed=3, window=0))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for rank in range(2):
        mine = gf.DistributedItemSampler(gf.ItemSet(NODES, names="seeds"), 16, shuffle=True, rank=rank, world_size=2)
        pipe = with_items(pipe_of(path), lambda _, mine=mine: mine)  # type: ignore[misc]
        with gf.DataLoader(pipe, 1, window=4, memory_limit=SIZE, seed=3) as loader:
            (stage,) = find(loader.plan.running, ReadAhead)
            assert digests(loader) == expected[rank::2]
            assert stage.max_size_in_bytes <= SIZE / 2  # type: ignore[attr-defined]


def cached(feature: gf.Feature, device: str) -> gf.Feature:
    return gf.gpu_cached_feature(feature, 5000, device)


@pytest.mark.parametrize(("twice", "num_workers"), [(False, 0), (True, 2)])
def test_rows_for_a_gpu_are_read_ahead_while_samples_wait_on_the_cpu(
    path: Path, cuda: Cuda, twice: bool, num_workers: int
) -> None:
    expected = digests(gf.DataLoader(pipe_of(path), num_workers=0, seed=3, window=0))
    file: gf.Feature = gf.DiskBasedFeature(path)
    with running(cuda):
        own = cached(gf.cpu_cached_feature(file, 5000) if twice else file, device_of(cuda))
        with gf.DataLoader(behind_a_copy(own, device_of(cuda)), num_workers, window=4, seed=3) as loader:
            found = list(loader)
            assert all(map(cuda.is_there, tensors_in([vars(minibatch) for minibatch in found])))
            assert [digest(minibatch.to("cpu")) for minibatch in found] == expected
            (rows,) = [rows for _, rows in loader.list_caches() if isinstance(rows, PlannedRows)]
            assert rows.hits > rows.misses > 0


def test_a_cache_on_a_gpu_that_is_larger_than_the_memory_for_rows_reads_fewer(path: Path) -> None:
    feature = cached(gf.DiskBasedFeature(path), "cpu")
    assert [len(windows(pipe_of(feature), memory_limit=size)) for size in (4500, 5500, SIZE)] == [0, 1, 0]
    assert len(windows(pipe_of(feature), memory_limit=4500, window=4)) == 1


def test_features_of_edges_and_types_are_read_ahead_too(path: Path, tmp_path: Path) -> None:
    numbers = torch.arange(NODES)
    edges = {"paper:cites:paper": (numbers, numbers * 7 % NODES), "author:writes:paper": (numbers, numbers * 3 % NODES)}
    graph = gf.from_coo(edges, num_nodes={"author": NODES, "paper": NODES})
    np.save(tmp_path / "year.npy", np.arange(NODES)[:, None])
    year = gf.DiskBasedFeature(tmp_path / "year.npy")
    store = gf.BasicFeatureStore(
        {("node", "paper", "feat"): gf.DiskBasedFeature(path), ("edge", "paper:cites:paper", "year"): year}
    )
    pipe: gf.Datapipe = gf.ItemSampler(gf.HeteroItemSet({"paper": gf.ItemSet(NODES, names="seeds")}), batch_size=16)
    pipe = pipe.sample_neighbor(graph, fanouts=[2, 2])
    pipe = pipe.fetch_feature(store, {"paper": ["feat"]}, {"paper:cites:paper": ["year"]})
    expected = digests(gf.DataLoader(pipe, num_workers=0, window=0, seed=0))
    with gf.DataLoader(pipe, num_workers=2, window=6, seed=0) as loader:
        assert digests(loader) == expected
        assert "node paper feat" in loader.explain()
        assert "edge paper:cites:paper year" in loader.explain()


class Halved(gf.DiskBasedFeature):
    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        return super().read(ids) / 2


class HalvingStore(gf.BasicFeatureStore):
    def read(self, *key: Any) -> torch.Tensor:
        return super().read(*key) / 2


def test_what_changes_rows_as_it_reads_them_is_asked_for_each_mini_batch(path: Path) -> None:
    given: dict[str, Any] = {"num_workers": 0, "memory_limit": 20_000, "seed": 1}
    assert windows(pipe_of(path), **given)
    fetch: Any = pipe_of(path)
    halving = fetch.changed(feature_store=HalvingStore({("node", None, "feat"): gf.DiskBasedFeature(path)}))
    expected = [minibatch.node_features["feat"] / 2 for minibatch in gf.DataLoader(fetch, **given)]
    for pipe in (pipe_of(Halved(path)), pipe_of(gf.cpu_cached_feature(Halved(path), 2000)), halving):
        assert windows(pipe, **given) == []
        rows = [minibatch.node_features["feat"] for minibatch in gf.DataLoader(pipe, **given)]
        assert all(map(torch.equal, rows, expected))


class ReadsMore(gf.FeatureFetcher):
    def __call__(self, minibatch: Any) -> Any:
        ids = (minibatch.input_nodes * 3 + 1) % NODES
        minibatch = super().__call__(minibatch)
        minibatch.more = self.feature_store.read("node", None, "feat", ids)
        return minibatch


def test_rows_that_a_fetch_did_not_announce_are_those_of_the_file(path: Path) -> None:
    fetch: Any = pipe_of(path)
    pipe, rows = ReadsMore(fetch.datapipe, fetch.feature_store, ["feat"]), torch.from_numpy(np.load(path))
    assert windows(pipe, num_workers=0, memory_limit=10_000)
    minibatch: Any
    for minibatch in gf.DataLoader(pipe, num_workers=0, memory_limit=10_000):
        assert torch.equal(minibatch.more, rows[(minibatch.input_nodes * 3 + 1) % NODES])
        assert torch.equal(minibatch.node_features["feat"], rows[minibatch.input_nodes])


MANY = 2000


class Windowed(gf.FusedCSCSamplingGraph):
    """A graph in memory that samples windows hop by hop, as a partitioned one does."""

    def way(self, request: SamplingRequest, *, on_cpu: bool = True) -> Way:
        return Way(False, "this is a test", 20_000.0)


@pytest.fixture(scope="module")
def windowed() -> Windowed:
    return Windowed(**graph(MANY).fields())


def sampled(graph: gf.SamplingGraph, kind: type[gf.NeighborSampler] = gf.NeighborSampler, **options: Any) -> Any:
    items = gf.ItemSampler(gf.ItemSet(MANY, names="seeds"), batch_size=64, shuffle=True)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.arange(MANY)[:, None])})
    pipe = kind(items, graph, [2, 2], **options)
    return pipe.fetch_feature(store, node_feature_keys=["feat"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_mini_batches_are_those_that_are_sampled_apart(windowed: Windowed, num_workers: int) -> None:
    loader = gf.DataLoader(sampled(windowed), num_workers, seed=3)
    assert "sample_together" in loader.explain()
    expected = digests(gf.DataLoader(sampled(graph(MANY)), num_workers, seed=3))
    assert digests(loader) == expected == digests(gf.DataLoader(sampled(windowed), num_workers, seed=3, window=0))
    alone = gf.DataLoader(sampled(windowed).datapipe, num_workers, seed=3)
    assert len(list(alone)) == len(alone) == 32
    loader = gf.DataLoader(sampled(windowed), num_workers, seed=3)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    again = gf.DataLoader(sampled(windowed), num_workers, seed=3)
    again.load_state_dict(loader.state_dict())
    assert digests(again) == expected[4:]


def test_a_window_is_as_large_as_asked_and_as_there_is_memory_for(windowed: Windowed) -> None:
    for options, size, most in (({"window": 5}, 5, 20_000), ({"window": 500}, 32, 20_000), ({}, 32, 20_000),
                                ({"memory_limit": 10_000}, None, 10_000)):  # fmt: skip
        (stage,) = windows(sampled(windowed), num_workers=2, **options)
        assert size in (None, stage.window)
        assert (stage.window_bytes, stage.num_threads) == (most, 2)


def test_what_is_not_read_together_is_sampled_apart(windowed: Windowed, tmp_path: Path) -> None:
    for options in ({"window": 0}, {"worker": "process"}):
        assert windows(sampled(windowed), num_workers=2, **options) == []
    windowed.save(tmp_path / "graph")
    with limits(memory_bytes=90_000):  # less than the file has
        assert windows(sampled(gf.load_graph(tmp_path / "graph")), num_workers=2) == []


@pytest.mark.parametrize("options", [{"only_new": True}, {"deduplicate": False}, {"disjoint": True}], ids=str)
def test_each_request_is_sampled_in_windows(windowed: Windowed, options: dict[str, Any]) -> None:
    pipe = sampled(windowed, **options)
    assert len(windows(pipe, num_workers=2)) == 1
    assert digests(gf.DataLoader(pipe, 2, seed=3)) == digests(gf.DataLoader(sampled(graph(MANY), **options), 0, seed=3))


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("sample_layer_neighbor", {"batch_dependency": 3}),
        ("temporal_sample_neighbor", {"edge_timestamp_attr_name": "time", "hop_time": "edge"}),
        ("temporal_sample_layer_neighbor", {"edge_timestamp_attr_name": "time", "pre_time_window": 900}),
    ],
)
def test_each_sampler_with_fan_outs_samples_in_windows(stage: str, options: dict[str, Any]) -> None:
    whole, nodes = graph(MANY), torch.arange(MANY)
    whole.add_edge_attribute("time", torch.arange(whole.total_num_edges) * 7 % 1000)
    items = gf.ItemSampler(gf.ItemSet((nodes, nodes % 1000), names=("seeds", "timestamp")), 64, shuffle=True)
    apart, together = (getattr(items, stage)(own, [2, 2], **options) for own in (whole, Windowed(**whole.fields())))
    assert [len(windows(pipe, num_workers=2)) for pipe in (apart, together)] == [0, 1]
    assert digests(gf.DataLoader(together, 2, seed=3)) == digests(gf.DataLoader(apart, 2, seed=3))


class Fewer(gf.NeighborSampler):
    """Has its own way of sampling."""

    def sample_hops(self, seeds: Any) -> list[gf.SampledSubgraph]:
        return super().sample_hops(seeds[::2])


class FewerTogether(Fewer):
    """Also samples several mini-batches together."""

    def sample_window(self, minibatches: Sequence[Any]) -> list[Any]:
        return list(map(self, minibatches))

    def attach_hops(self, minibatch: Any, pending: Any) -> Any:
        return pending


def test_a_sampler_with_a_way_of_its_own_is_in_windows_once_it_says_how(windowed: Windowed) -> None:
    apart, together = (sampled(windowed, kind, deduplicate=True) for kind in (Fewer, FewerTogether))
    assert [len(windows(pipe, num_workers=2)) for pipe in (apart, together)] == [0, 1]
    first, second, usual = (digests(gf.DataLoader(pipe, 2, seed=3)) for pipe in (apart, together, sampled(windowed)))
    assert first == second != usual
