from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader import disk_rules
from graphfeed.loader.stages.in_windows import InWindows
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

NODES, SIZE = 400, 400 * 16 * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "feat.npy", np.random.default_rng(0).random((NODES, 16), np.float32))
    return tmp_path / "feat.npy"


def pipe_of(feature: gf.Feature | Path) -> gf.Datapipe:
    if isinstance(feature, Path):
        feature = gf.DiskBasedFeature(feature)
    numbers = torch.arange(NODES)
    graph = gf.from_coo(
        (numbers.repeat(3), torch.cat([numbers * 7, numbers * 11, numbers + 1]) % NODES), num_nodes=NODES
    )
    store = gf.BasicFeatureStore(
        {("node", None, "feat"): feature, ("edge", None, "feat"): gf.TorchBasedFeature(numbers[:, None])}
    )
    pipe = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=16, shuffle=True)
    return pipe.sample_neighbor(graph, fanouts=[2, 2]).fetch_feature(store, node_feature_keys=["feat"])


def windows(pipe: gf.Datapipe, **options: Any) -> list[InWindows]:
    found = find(gf.DataLoader(pipe, **options).plan.running, InWindows)
    return [stage for stage in found if isinstance(stage, InWindows)]


def test_files_larger_than_the_memory_are_read_in_windows(path: Path) -> None:
    assert windows(pipe_of(path)) == []
    assert windows(pipe_of(path), memory_limit=SIZE) == []
    (stage,) = windows(pipe_of(path), memory_limit=SIZE - 1)
    assert stage.memory.max_size_in_bytes + 3 * stage.sample_bytes <= SIZE - 1
    assert windows(pipe_of(path), memory_limit=SIZE - 1, window=0) == []
    assert "fetch_in_windows" in gf.DataLoader(pipe_of(path), memory_limit=SIZE - 1).explain()


def test_without_a_limit_a_third_of_the_free_memory_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_rules, "available_memory", lambda: 3.0 * SIZE)
    assert windows(pipe_of(path)) == []
    monkeypatch.setattr(disk_rules, "available_memory", lambda: 3.0 * SIZE - 4)
    assert len(windows(pipe_of(path))) == 1
    # Too little for the bookkeeping: then nothing is read ahead unless somebody asks for it.
    monkeypatch.setattr(disk_rules, "available_memory", lambda: 100.0)
    assert windows(pipe_of(path)) == []


def test_narrow_and_empty_features_leave_room_for_others(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "label.npy", np.zeros((NODES, 1), np.uint8))
    np.save(tmp_path / "none.npy", np.zeros((NODES, 0), np.uint8))
    names = {"feat": path, "label": tmp_path / "label.npy", "none": tmp_path / "none.npy"}
    features = {("node", None, name): gf.DiskBasedFeature(file) for name, file in names.items()}
    pipe = pipe_of(path).fetch_feature(gf.BasicFeatureStore(features), node_feature_keys=list(names))
    first, second = windows(pipe, window=4, memory_limit=40_000)
    assert len(first.memory.features) == 1
    assert len(second.memory.features) == 2
    assert second.memory.has_room()
    assert first.memory.max_size_in_bytes + second.memory.max_size_in_bytes <= 40_000


def test_plans_for_other_workers_share_the_memory(path: Path) -> None:
    pipe = pipe_of(path)
    (one,), (other,) = windows(pipe, window=4, num_workers=0), windows(pipe, window=4, num_workers=2)
    (limited,) = windows(pipe, window=4, memory_limit=SIZE)
    assert one.memory is other.memory is not limited.memory


def test_a_window_is_used_where_one_is_asked_for(path: Path) -> None:
    (stage,) = windows(pipe_of(path), window=4, num_workers=0)
    assert stage.window == 4
    with pytest.raises(
        ValueError,
        match=r"ahead may take 75 bytes, but .* take 2140; give the DataLoader a larger memory_limit, or window=0",
    ):
        next(iter(gf.DataLoader(pipe_of(path), window=4, memory_limit=100)))


def test_a_cache_in_memory_gives_way_and_other_features_are_left_alone(path: Path) -> None:
    feature = gf.DiskBasedFeature(path)
    cached = gf.cpu_cached_feature(feature, 10_000)
    (stage,) = windows(pipe_of(cached), window=4)
    assert list(stage.memory.features.values()) == [feature]
    assert windows(pipe_of(feature.read_into_memory()), window=4) == []
    assert windows(pipe_of(path).copy_to("cuda:0"), window=4, num_workers=0) != []
    assert windows(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2), window=4) == []


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 3, "window": 5},
        {"num_workers": 2, "memory_limit": 20_000},
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
        rest = list(loader)  # the epoch after that which was left
        loader.load_state_dict(state)
        resumed = digests(loader)
    with gf.DataLoader(pipe, num_workers=0, seed=3, window=0) as plain:
        plain.set_epoch(1)
        assert resumed == digests(plain)[11:]
        assert digests(rest) == digests(plain)


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
