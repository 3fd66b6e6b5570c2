import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    StoredPart,
    cut_rows,
    open_part,
    write_partition,
)
from graphfeed.distributed.halo_rows import HaloIds, HaloRows
from graphfeed.distributed.ranks.messages import Traffic
from tests.digests import digest
from tests.distributed import graphs
from tests.distributed.joint import in_threads
from tests.distributed.one_machine.test_sharing_ranks import Elsewhere
from tests.golden_pipelines import numbers

FEATURES = {"x": (torch.bfloat16, (1,)), "y": (torch.float32, (8, 3))}
ROW_BYTES = 2 + 96


def sizes_of(graph: gf.SamplingGraph) -> dict[str | None, int]:
    sizes = graph.num_nodes
    return dict(sizes.items()) if isinstance(sizes, dict) else {None: sizes}


def features_of(graph: gf.SamplingGraph) -> gf.BasicFeatureStore:
    """Return features that tell the ids of nodes, two for each type, and a feature of edges."""
    found: dict[tuple[str, str | None, str], gf.Feature] = {}
    for number, (kind, size) in enumerate(sizes_of(graph).items()):
        for name, (dtype, shape) in FEATURES.items():
            ids = torch.arange(size).view(-1, *[1] * len(shape)) + 100 * number
            found["node", kind, name] = gf.TorchBasedFeature(ids.expand(-1, *shape).to(dtype).contiguous())
    kind, count = ("user:likes:item", 300) if None not in sizes_of(graph) else (None, 700)
    found["edge", kind, "e"] = gf.TorchBasedFeature(torch.arange(count)[:, None])
    return gf.BasicFeatureStore(found)


def epoch(graph: gf.SamplingGraph, features: gf.FeatureStore) -> list[gf.MiniBatch]:
    """Return the mini-batches of an epoch, with all features."""
    sizes: Any = graph.num_nodes
    kinds = list(sizes) if isinstance(sizes, dict) else [None]
    items: Any = gf.ItemSet(sizes if kinds == [None] else sizes["user"], names="seeds")
    pipe = gf.ItemSampler(items if kinds == [None] else gf.HeteroItemSet({"user": items}), 45, shuffle=True)
    names: Any = list(FEATURES) if kinds == [None] else {kind: list(FEATURES) for kind in kinds}
    edges: Any = ["e"] if kinds == [None] else {"user:likes:item": ["e"]}
    fetched = pipe.sample_neighbor(graph, [3, 4]).fetch_feature(features, names, edges)
    with gf.DataLoader(fetched, 0, seed=1) as loader:
        return list(loader)


class Found(NamedTuple):
    """What a rank made, and what it took."""

    digests: list[str]
    looked_up: int
    """The rows of nodes of other parts, one for each mini-batch, node and feature."""
    copied: int
    """Those of them of which the part has copies."""
    traffic: Traffic


def run_parts(root: Path, num_parts: int, *, share_memory: bool = False) -> list[Found]:
    """Return what each rank found, and count what others were asked."""

    def work(rank: int, peers: Peers) -> Found:
        part = open_part(root, rank, check=True)
        batches = epoch(PartitionedGraph(part.graph, peers), part.partitioned_features(peers))
        counts = [count_rows(part, batch) for batch in batches]
        looked_up, copied = (sum(count[number] for count in counts) for number in range(2))
        return Found([digest(batch) for batch in batches], looked_up, copied, peers.traffic)

    return in_threads(num_parts, work, share_memory=share_memory)


def count_rows(part: StoredPart, batch: gf.MiniBatch) -> tuple[int, int]:
    """Return how many rows of other parts a mini-batch has, and of how many of them the part has copies."""
    nodes: Any = batch.input_nodes
    looked_up = copied = 0
    for kind, ids in (nodes if isinstance(nodes, dict) else {None: nodes}).items():
        for name in FEATURES:
            key = gf.FeatureKey("node", kind, name)
            remote = ids[part.books[key].owners_of(ids) != part.graph.number]
            looked_up += len(remote)
            copied += int(torch.isin(remote, part.halo[key].of.ids).sum()) if part.halo else 0
    return looked_up, copied


def assign(graph: gf.FusedCSCSamplingGraph, owning: int) -> Any:
    """Return the part of each node; those parts that are left own none."""
    found = {kind: numbers(size, owning, 70 + number) for number, (kind, size) in enumerate(sizes_of(graph).items())}
    return found.get(None, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "num_parts", "owning"), [(graphs.plain, 2, 2), (graphs.plain, 3, 3), (graphs.typed, 3, 2)]
)
def test_copies_are_read_rather_than_asked_for_and_mini_batches_stay_the_same(
    make: Callable[[], gf.FusedCSCSamplingGraph],
    num_parts: int,
    owning: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = make()
    features, parts = features_of(graph), assign(graph, owning)
    expected = [digest(batch) for batch in epoch(graph, features)]
    asked = []
    answer, lock = PartitionedFeature._answer, threading.Lock()

    def count(feature: PartitionedFeature, options: Any, questions: Any) -> Any:
        with lock:
            asked.append(0 if '"edge"' in feature._name else questions["ids"].numel())
        return answer(feature, options, questions)

    monkeypatch.setattr(PartitionedFeature, "_answer", count)
    sent = []
    for number, halo in enumerate([0, 12 * (ROW_BYTES + 8), 1 << 30]):
        root = write_partition(tmp_path / str(number), graph, parts, num_parts, features, halo)
        asked.clear()
        found = run_parts(root, num_parts)
        assert [rank.digests for rank in found] == [expected] * num_parts
        assert sum(asked) == sum(rank.looked_up - rank.copied for rank in found)
        assert (sum(rank.copied for rank in found) > 0) == (halo > 0)
        sent.append(
            (sum(rank.traffic.bytes_sent for rank in found), sum(rank.copied for rank in found) * ROW_BYTES / 2)
        )
    assert sent[0][0] - sent[2][0] > 0.5 * sent[2][1] > 0.5 * sent[1][1]


@pytest.mark.slow
def test_copies_are_not_read_where_ranks_share_memory(tmp_path: Path) -> None:
    graph = graphs.plain()
    features = features_of(graph)
    root = write_partition(tmp_path / "parts", graph, assign(graph, 2), 2, features, 1 << 30)
    for path in root.glob("part_*/halo_feature_*.npy"):
        np.save(path, np.zeros_like(np.load(path)))  # such copies would be noticed
    expected = [digest(batch) for batch in epoch(graph, features)]
    assert [rank.digests for rank in run_parts(root, 2, share_memory=True)] == [expected] * 2
    assert [rank.digests for rank in run_parts(root, 2)] != [expected] * 2


def test_ranks_may_differ_about_copies_and_without_them_updates_are_seen(tmp_path: Path) -> None:
    graph = graphs.plain()
    root = write_partition(tmp_path / "parts", graph, assign(graph, 2), 2, features_of(graph), 1 << 30)
    both = threading.Barrier(2, timeout=60)

    def work(rank: int, peers: Peers) -> list[torch.Tensor]:
        feature: Any = open_part(root, rank).partitioned_features(peers, halo=rank == 0)["node", None, "y"]
        before = feature.read()
        both.wait()
        feature.rows.update(torch.zeros(feature.rows.count(), 8, 3))
        both.wait()
        after = feature.read()
        both.wait()
        return [before[:, 0, 0], after[:, 0, 0]]

    (before, with_copies), (_, without) = in_threads(2, work, share_memory=False)
    assert torch.equal(before, torch.arange(100.0))
    assert without.count_nonzero() == 0 < with_copies.count_nonzero()


@pytest.mark.parametrize("copied", [[1, 6], [], [0, 1, 2, 5, 6, 8, 9]])
def test_copies_are_read_where_a_rank_has_its_own_rows_on_disk(copied: list[int]) -> None:
    values, book = (
        torch.arange(20.0).view(10, 2),
        PartBook.from_assignment(torch.tensor([1, 1, 1, 0, 0, 1, 1, 0, 1, 1])),
    )

    def work(rank: int, peers: Peers) -> list[bool]:
        own = cut_rows(values, book, rank)
        ids = torch.tensor(copied if rank == 0 else [], dtype=torch.int64)
        halo = HaloRows(HaloIds(ids, 10), values[ids], own)
        feature = PartitionedFeature(Elsewhere(own) if rank == 0 else own, book, peers, halo=halo)
        asked = torch.tensor([9, 3, 9, 1, 0, 5])
        return [
            torch.equal(feature.read(given), values[given]) for given in (asked, asked.int(), asked[1:2], asked[:0])
        ]

    assert in_threads(2, work, share_memory=False) == [[True] * 4] * 2


@pytest.mark.parametrize(("ids", "message"), [([2, 2], "must ascend"), ([4, 10], r"lie in 0 \.\. 9"), ([-1, 3], "lie")])
def test_ids_of_copies_are_checked(ids: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HaloIds(torch.tensor(ids), 10).offsets  # noqa: B018  # it is made when it is asked for


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(3, 2), r"must be 2 of shape \(2,\), one per id, but have shape \(3, 2\)"),
        (torch.zeros(2, 1), r"but have shape \(2, 1\)"),
        (torch.zeros(2, 2).double(), "must be torch.float32 as those of the part, but are torch.float64"),
    ],
)
def test_copies_of_another_number_shape_or_dtype_are_refused(rows: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HaloRows(HaloIds(torch.tensor([1, 4]), 10), rows, torch.zeros(5, 2))
