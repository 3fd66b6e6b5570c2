"""Ranks get a warning if all of them build mini-batches of the same items."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

import graphfeed as gf
from tests.stand_ins.rank_processes import run_ranks

IDS = torch.arange(20)
ITEMS: Any = range(20)


def core(ids: torch.Tensor, sampler: Any = gf.ItemSampler, **options: Any) -> gf.DataLoader:
    return gf.DataLoader(sampler(gf.ItemSet(ids, names="seeds"), 4), 0, **options)


def of_pyg(name: str, **options: Any) -> gf.DataLoader:
    data = pytest.importorskip("torch_geometric.data")
    edges = torch.stack([IDS, IDS.roll(1)])
    loader: gf.DataLoader = getattr(gf.pyg, name)(data.Data(edge_index=edges, num_nodes=20), **options)
    return loader


def warnings_of(make: Callable[[], gf.DataLoader], epochs: int = 2) -> list[str]:
    """Return the warnings of a loader, from its creation to the end of some epochs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make() as loader:
            for _ in range(epochs):
                assert list(loader)
    return [str(one.message) for one in caught if "ranks builds" in str(one.message)]


def be_rank() -> dict[str, list[str]]:
    """Create loaders as a rank does, the same on each rank unless arguments differ."""
    rank = distributed.get_rank()
    own, sizes = IDS[rank::2], {"num_neighbors": [2], "seed": 0}
    loaders: dict[str, Callable[[], gf.DataLoader]] = {
        "all": lambda: core(IDS, seed=0),
        "all, no seed": lambda: core(IDS),
        "a share": lambda: core(own, seed=0),
        "shared out": lambda: core(IDS, gf.DistributedItemSampler, seed=0),
        "nodes": lambda: of_pyg("NeighborLoader", **sizes),
        "links": lambda: of_pyg("LinkNeighborLoader", **sizes),
        "in a random order": lambda: of_pyg("NeighborLoader", sampler=RandomSampler(IDS), **sizes),
        "shared nodes": lambda: of_pyg("NeighborLoader", input_nodes=own, **sizes),
        "sampler": lambda: of_pyg("NeighborLoader", sampler=DistributedSampler(ITEMS), **sizes),
    }
    found = {name: warnings_of(make) for name, make in loaders.items()}
    if rank == 0:  # no rank waits forever for a loader that others don't create
        found["alone"] = warnings_of(lambda: core(IDS[:7], seed=0))
    distributed.barrier()
    return found


@pytest.mark.slow
def test_ranks_that_make_the_same_mini_batches_are_told_once_what_to_do(tmp_path: Path) -> None:
    first, second = run_ranks(f"{__name__}:be_rank", 2, tmp_path)
    assert first.pop("alone") == []
    for found in (first, second):
        told = {name: texts[0] for name, texts in found.items() if texts}
        assert {name: len(texts) for name, texts in found.items() if texts} == dict.fromkeys(told, 1)
        assert list(told) == ["all", "all, no seed", "nodes", "links", "in a random order"]
        assert all("DistributedItemSampler" in told[name] for name in ("all", "all, no seed"))
        assert "input_nodes, or pass sampler=torch.utils.data.DistributedSampler" in told["nodes"]
        assert "edge_label_index, or pass sampler=torch.utils.data.DistributedSampler" in told["links"]


def test_without_a_process_group_the_launcher_says_how_many_ranks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warnings_of(lambda: core(IDS, seed=0)) == []
    monkeypatch.setenv("WORLD_SIZE", "2")
    (text,) = warnings_of(lambda: core(IDS, seed=0))
    assert "each of 2 ranks builds mini-batches of all items" in text
    shared: Any = DistributedSampler(ITEMS, 2, 0)
    orders: list[dict[str, Any]] = [{"sampler": shared}, {"batch_sampler": BatchSampler(shared, 4, False)}]
    for order in orders:
        assert warnings_of(partial(of_pyg, "NeighborLoader", num_neighbors=[2], **order)) == []
