"""Identity of data: the same wherever the same rows are stored, and another one for other rows."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from graphfeed.storage.datasets import identify
from tests.kinds import pipelines

ROWS = torch.arange(30.0).view(10, 3)


def test_the_same_rows_have_the_same_identity_wherever_they_lie(tmp_path: Path) -> None:
    (sampler,) = gf.find(pipelines.weighted(), gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    graph: Any = sampler.graph
    graph.save(tmp_path / "graph")
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    feature, on_disk = gf.TorchBasedFeature(ROWS), gf.DiskBasedFeature(tmp_path / "rows.npy")
    cached = gf.cpu_cached_feature(on_disk, 1000)
    alike: list[list[Any]] = [
        [graph, gf.load_graph(tmp_path / "graph"), graph.to("cpu")],
        [feature, on_disk, cached],
        [gf.ItemSet(10), gf.ItemSet(range(10)), gf.ItemSet(torch.arange(10)), gf.ItemSet(list(range(10)), "seeds")],
    ]
    texts = [{identify(data) for data in same} for same in alike]
    assert [len(text) for text in texts] == [1, 1, 1]
    assert len(set.union(*texts)) == 3
    assert cached.miss_rate == 0


def test_other_rows_have_another_identity() -> None:
    sets = {"user": gf.ItemSet(3), "item": gf.ItemSet(2)}
    others: list[Any] = [
        gf.ItemSet(10),
        gf.ItemSet(10, group_size=2),
        gf.ItemSet(torch.arange(10, dtype=torch.int32)),
        gf.ItemSet(torch.arange(10).flip(0)),
        gf.ItemSet((torch.arange(10), torch.arange(10))),
        gf.ItemSet((torch.arange(10), torch.arange(10) < 5), names=("seeds", "mask")),
        gf.ItemSet((torch.arange(10), torch.arange(10) < 6), names=("seeds", "mask")),
        gf.ItemSet(["a", "b"]),
        gf.ItemSet(["a", "c"]),
        gf.HeteroItemSet(sets),
        gf.HeteroItemSet(dict(reversed(sets.items()))),
        gf.HeteroItemSet({**sets, "user": gf.ItemSet(3, group_size=3)}),
        gf.TorchBasedFeature(ROWS),
        gf.TorchBasedFeature(ROWS.view(6, 5)),
        gf.TorchBasedFeature(ROWS + 1),
        gf.from_coo(([0, 1], [1, 0]), 2),
        gf.from_coo(([0, 1], [1, 0]), 3),
        gf.from_coo(([1, 1], [1, 0]), 2),
        gf.from_coo({"a:b:a": ([0, 1], [1, 0])}, {"a": 2}),
        gf.from_coo({"a:c:a": ([0, 1], [1, 0])}, {"a": 2}),
    ]
    assert len({identify(data) for data in others}) == len(others)
    assert identify(gf.ItemSet([{(1, 2): object()}, {3: print}])) == identify(
        gf.ItemSet([{(2, 1): object()}, {3: len}])
    )
    assert identify(ROWS) == identify(None) == ""
    assert identify(others[0], 1) != identify(others[0], 2) != identify(others[0])


def test_of_a_large_array_rows_from_the_first_to_the_last_count() -> None:
    size = 1 << 20
    whole = identify(gf.ItemSet(size))
    assert identify(gf.ItemSet(torch.arange(size))) == whole
    assert identify(gf.ItemSet(torch.arange(size).roll(1))) != whole
    for place in (0, size - 1):
        assert identify(gf.ItemSet(torch.arange(size).index_fill(0, torch.tensor([place]), -1))) != whole
