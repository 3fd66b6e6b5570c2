"""Encoded features in parts: files, messages, windows and caches have codes, which are decoded last."""

import json
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartitionedGraph,
    Peers,
    StoredPart,
    assign_nodes,
    open_part,
    write_partition,
)
from graphfeed.storage import DiskBasedFeature, EncodedFeature
from tests.kinds.digests import assert_same
from tests.kinds.joint import in_threads
from tests.kinds.partitioned_graphs import plain

NUM_NODES = 100
KINDS: dict[str, Any] = {
    "bytes": {"bits": 8},
    "nibbles": {"bits": 4, "dtype": torch.bfloat16},
    "halves": {"bits": torch.float16},
    "bfloat16": {"bits": torch.bfloat16},
    "own": {"bits": 8, "per": "row"},
}
SHAPES: dict[str, tuple[int, ...]] = dict.fromkeys(KINDS, (64,)) | {"nibbles": (9, 3)}
IDS = torch.tensor([5, 99, 5, 0, *range(0, NUM_NODES, 3)])


@cache
def features() -> gf.BasicFeatureStore:
    """Return features of nodes, of edges, and of the graph itself."""
    generator = torch.Generator().manual_seed(0)
    found: dict[Any, gf.Feature] = {}
    for domain, count in (("node", NUM_NODES), ("edge", 700), ("graph", 2)):
        for name, options in KINDS.items():
            rows = torch.randn((count, *SHAPES[name]), generator=generator)
            found[domain, None, name] = gf.TorchBasedFeature(rows).encode(**options)
    return gf.BasicFeatureStore(found)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    graph = plain(NUM_NODES)
    return write_partition(tmp_path / "parts", graph, assign_nodes(graph, 2, "hash"), 2, features())


def test_parts_have_codes_that_all_ranks_read(root: Path) -> None:
    def work(rank: int, peers: Peers) -> None:
        part = open_part(root, rank, check=True)
        of_ranks = part.partitioned_features(peers)
        for key in features().keys():  # noqa: SIM118 - a store
            whole, own, found = features()[key], part.features[key], of_ranks[key]
            assert isinstance(own, EncodedFeature)
            assert isinstance(found, EncodedFeature)
            assert isinstance(whole, EncodedFeature)
            assert found.stored.dtype == own.stored.dtype == whole.stored.dtype
            assert_same([own.coding(), own.arrays()], [whole.coding(), whole.arrays()])
            ids = IDS if key[0] != "graph" else IDS[:0]
            for reader in (found, gf.cpu_cached_feature(found, 1 << 12)):
                for given in (ids, ids.int(), ids):
                    assert_same(reader.read(given), whole.read(ids))
            *_, last = found.read_async(ids)
            assert_same(last.wait(), whole.read(ids))

    in_threads(2, work)


def epoch(graph: Any, store: gf.FeatureStore, **options: Any) -> list[gf.MiniBatch]:
    pipe = gf.ItemSampler(gf.ItemSet(NUM_NODES, names="seeds"), 20, shuffle=True).sample_neighbor(graph, [3, 4])
    with gf.DataLoader(pipe.fetch_feature(store, list(KINDS), list(KINDS)), seed=1, **options) as loader:
        found = list(loader)
        ahead = "rows of the next mini-batches in memory" in loader.explain()
        assert ahead == (isinstance(graph, PartitionedGraph) and options.get("window") != 0)
        return found


@pytest.mark.parametrize("options", [{"window": 0}, {"num_workers": 2, "window": 3}])
def test_loaders_of_ranks_yield_the_same_rows_in_windows(root: Path, options: Any) -> None:
    expected = epoch(plain(NUM_NODES), features(), window=0)

    def work(rank: int, peers: Peers) -> None:
        part = open_part(root, rank)
        assert_same(epoch(PartitionedGraph(part.graph, peers), part.partitioned_features(peers), **options), expected)

    in_threads(2, work)


def test_a_quarter_of_the_bytes_is_sent(tmp_path: Path) -> None:
    graph, rows = plain(NUM_NODES), torch.randn(NUM_NODES, 4000)
    feature = gf.TorchBasedFeature(rows)
    sent, meet = [], threading.Barrier(2, timeout=60)
    for number, own in enumerate((feature, feature.encode(8), feature.encode(4))):
        store = gf.BasicFeatureStore({("node", None, "x"): own})
        folder = write_partition(tmp_path / str(number), graph, assign_nodes(graph, 2, "hash"), 2, store)

        def work(rank: int, peers: Peers, folder: Path = folder) -> int:
            found = open_part(folder, rank).partitioned_features(peers)["node", None, "x"]
            found.read(torch.arange(0))
            meet.wait()
            before = peers.traffic.bytes_sent
            meet.wait()
            found.read(torch.arange(NUM_NODES))
            meet.wait()
            return peers.traffic.bytes_sent - before

        sent.append(sum(in_threads(2, work)))
    assert 3.8 < sent[0] / sent[1] < 4
    assert 7.2 < sent[0] / sent[2] < 8


def test_encodings_of_a_damaged_partition_are_refused(root: Path) -> None:
    path = root / "partition.json"
    content = json.loads(path.read_text())
    scale = next(entry for entry in content["shared"] if entry["key"][-1:] == ["scale"])
    content["shared"].remove(scale)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="need scale and offset") as error:
        open_part(root, 0)
    assert "write it again" in str(error.value.__notes__)


def test_codes_on_disk_are_written_in_parts(tmp_path: Path) -> None:
    whole = gf.TorchBasedFeature(torch.randn(NUM_NODES, 7)).encode(8)
    np.save(tmp_path / "codes.npy", whole.stored.read().numpy())
    store = gf.BasicFeatureStore({("node", None, "x"): whole.with_stored(DiskBasedFeature(tmp_path / "codes.npy"))})
    graph = plain(NUM_NODES)
    write_partition(tmp_path / "parts", graph, assign_nodes(graph, 2, "hash"), 2, store)
    part: StoredPart = open_part(tmp_path / "parts", 1)
    own = part.graph.book.ids_of(1)
    assert_same(part.features["node", None, "x"].read(), whole.read(own))
