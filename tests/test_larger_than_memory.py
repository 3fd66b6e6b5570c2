"""Data that is mapped from files is read by worker processes from those files: nothing is copied to shared memory."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from tests import on_disk

MEGABYTE = 1 << 20
NUM_NODES = 1_000_000
NUM_EDGES = 4_000_000
WIDTH = 16
LIMIT = 8 * MEGABYTE
"""Room for mini-batches on their way; the graph has 40 MB, the features have 64, the items 16."""


def shared_memory(pid: int | str = "self") -> int:
    """Return how many bytes of shared memory a process uses, mapped files not counted."""
    found = re.search(r"RssShmem:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def write_graph(folder: Path) -> Path:
    starts = torch.linspace(0, NUM_EDGES, NUM_NODES + 1).long()
    sources = (torch.arange(NUM_EDGES) * 7919 % NUM_NODES).int()
    gf.fused_csc_sampling_graph(starts, sources).save(folder / "graph")
    return folder / "graph"


def write_items(folder: Path) -> Path:
    """Write a dataset whose items stay on disk."""
    ids = np.arange(NUM_NODES)
    data = on_disk.untyped(folder)
    seeds = {"name": "seeds", "in_memory": False, **on_disk.save(folder, "seeds.npy", ids)}
    labels = {"name": "labels", "in_memory": False, **on_disk.save(folder, "labels.npy", ids % 7)}
    data["graph"]["nodes"] = [{"num": NUM_NODES}]
    del data["graph"]["feature_data"], data["feature_data"]
    data["tasks"] = [{"name": "classes", "train_set": [{"data": [seeds, labels]}]}]
    return on_disk.write(folder, data)


def mapped_pipeline(folder: Path) -> gf.Datapipe:
    np.save(folder / "rows.npy", np.arange(NUM_NODES, dtype=np.float32)[:, None] * np.ones(WIDTH, np.float32))
    rows = torch.from_numpy(np.load(folder / "rows.npy", mmap_mode="c"))
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
    items = gf.OnDiskDataset(write_items(folder)).load().tasks[0].train_set
    assert items is not None
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=1000, shuffle=True)
    pipe = pipe.sample_neighbor(gf.load_graph(write_graph(folder)), fanouts=[2])
    return pipe.fetch_feature(store, node_feature_keys=["feat"])


@pytest.mark.slow
def test_worker_processes_map_the_files(disk_path: Path) -> None:
    pipe = mapped_pipeline(disk_path)
    before = shared_memory()
    with (
        gf.DataLoader(pipe, num_workers=2, worker="process", seed=0) as loader,
        gf.DataLoader(pipe, num_workers=0, seed=0) as inline,
    ):
        for batch, expected, _ in zip(loader, inline, range(10), strict=False):
            assert batch.node_features is not None
            assert torch.equal(batch.seeds, expected.seeds)
            assert torch.equal(batch.labels, batch.seeds % 7)
            assert torch.equal(batch.node_features["feat"][:, 0], batch.input_nodes.float())
        assert loader._workers.pool is not None
        workers = loader._workers.pool.pids()  # type: ignore[attr-defined]
        assert len(workers) == 2
        assert [shared_memory(pid) < LIMIT for pid in workers] == [True, True]
        assert shared_memory() - before < LIMIT
