"""Copies of rows of other parts: which are chosen, and that they are read rather than asked for."""

import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    StoredPart,
    assign_nodes,
    cut_rows,
    open_part,
    plan_halo,
    write_partition,
)
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.partitioned_feature import HaloIds, HaloRows
from graphfeed.distributed.ranks.messages import Traffic
from graphfeed.storage.graph.assign import stacked_assignment
from tests.digests import digest
from tests.distributed import graphs
from tests.distributed.joint import in_threads
from tests.distributed.test_partitioned_feature import Elsewhere
from tests.golden_pipelines import numbers
from tests.refusals import check_refused


def features_of(graph: gf.FusedCSCSamplingGraph, widths: dict[str | None, int]) -> gf.BasicFeatureStore:
    """Return features of float32 for some node types, beside a feature of edges and one of the graph."""
    sizes, kind = graphs.sizes_of(graph), next(iter(graph.edge_type_to_id or [None]))
    found: dict[Any, gf.Feature] = {("graph", None, "g"): gf.TorchBasedFeature(torch.zeros(1, 1))}
    found["edge", kind, "e"] = gf.TorchBasedFeature(torch.zeros(3, 1))
    for own, width in widths.items():
        found["node", own, "x"] = gf.TorchBasedFeature(torch.zeros(sizes[own], width))
        found["node", own, "half"] = gf.TorchBasedFeature(torch.zeros(sizes[own], 2, dtype=torch.float16))
    return gf.BasicFeatureStore(found)


def reference(
    graph: gf.FusedCSCSamplingGraph, parts: list[int], part: int, node_bytes: list[int], max_bytes: int
) -> tuple[list[int], int, int, int]:
    """Return the nodes of which a part gets copies, their bytes, the look-ups, and those answered."""
    ends = gf.expand_indptr(graph.csc_indptr, torch.int64).tolist()
    pairs = zip(graph.indices.tolist(), ends, strict=True)
    counts = Counter(source for source, end in pairs if parts[end] == part != parts[source] and node_bytes[source])
    chosen, taken = [], 0
    for node in sorted(counts, key=lambda node: (-counts[node], node)):
        if taken + node_bytes[node] > max_bytes:
            break
        chosen.append(node)
        taken += node_bytes[node]
    return sorted(chosen), taken, sum(counts.values()), sum(counts[node] for node in chosen)


@given(st.sampled_from(["plain", "typed", "one type"]), st.integers(1, 4), st.integers(0, 3000), st.integers(0, 9))
def test_the_hottest_nodes_are_chosen_within_the_bytes(name: str, num_parts: int, max_bytes: int, seed: int) -> None:
    graph = graphs.plain() if name == "plain" else graphs.typed()
    widths: dict[str | None, int] = {"plain": {None: 5}, "typed": {"user": 5, "item": 9}}.get(name, {"item": 1})  # type: ignore[assignment]
    assignment = assign_nodes(graph, num_parts, "hash", seed)
    parts = stacked_assignment(graph, assignment, num_parts).tolist()
    sizes = graphs.sizes_of(graph)
    node_bytes = [8 + 4 + 4 * widths[kind] if kind in widths else 0 for kind in sizes for _ in range(sizes[kind])]
    first = dict(zip(sizes, graph.first_ids() if graph.node_type_to_id else [0], strict=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_columns, "PIECE", 37)
        plan = plan_halo(graph, assignment, num_parts + 1, features_of(graph, widths), max_bytes)
    again = plan_halo(graph, assignment, num_parts + 1, features_of(graph, widths), plan.ids)
    for part in range(num_parts + 1):
        ids: Any = plan.ids[part] if isinstance(plan.ids[part], dict) else {None: plan.ids[part]}
        found = [node + first[kind] for kind in sizes for node in ids[kind].tolist()]
        of_part = (plan.num_bytes[part], plan.look_ups[part], plan.answered[part])
        assert (found, *of_part) == reference(graph, parts, part, node_bytes, max_bytes)
        assert plan.num_rows[part] == len(found)
    assert (again.num_rows, again.num_bytes, again.answered) == (plan.num_rows, plan.num_bytes, plan.answered)
    assert str(again) == str(plan)
    assert plan.share == sum(plan.answered) / max(sum(plan.look_ups), 1)


def test_what_can_t_be_copied_is_refused() -> None:
    plain, typed, one = graphs.plain(), graphs.typed(), torch.tensor([1])
    rows = {"plain": features_of(plain, {None: 1}), "typed": features_of(typed, {"user": 1})}

    def plan(halo: Any, graph: gf.FusedCSCSamplingGraph = plain, features: Any = rows["plain"]) -> object:
        return plan_halo(graph, assign_nodes(graph, 2, "hash"), 2, features, halo)

    def plan_typed(halo: Any) -> object:
        return plan(halo, typed, rows["typed"])

    needed = "halo_features needs features of nodes to copy, but there are none"
    check_refused(
        [
            (lambda: plan(-1), ValueError, "halo_features must be 0 or more, but is -1"),
            (lambda: plan(2e9), TypeError, r"halo_features must be a whole number or a list, but is 2000000000\.0"),
            (lambda: plan([one]), ValueError, "must have ids for each of 2 parts, but has 1"),
            (lambda: plan([torch.tensor([100])] * 2), IndexError, r"halo_features\[0\]"),
            (lambda: plan([torch.tensor([0.5])] * 2), TypeError, r"halo_features\[0\]"),
            (lambda: plan([{"user": one}] * 2), TypeError, "must be a tensor for this graph, but is a dict"),
            (lambda: plan_typed([one] * 2), TypeError, "must be a dict by node type for this graph"),
            (lambda: plan_typed([{"town": one}] * 2), ValueError, "is of node type 'town', but the graph has"),
            (lambda: plan(40, features=None), ValueError, needed),
            (lambda: plan(40, features=features_of(plain, {})), ValueError, needed),
        ]
    )


def test_bytes_may_be_any_whole_number_and_ids_lists() -> None:
    graph = graphs.plain()
    features, assignment = features_of(graph, {None: 1}), assign_nodes(graph, 2, "hash")
    plan = plan_halo(graph, assignment, 2, features, 300)
    as_lists: Any = [ids.tolist() for ids in plan.ids if isinstance(ids, torch.Tensor)]
    number: Any = np.int64(300)
    for halo in (number, as_lists):
        assert str(plan_halo(graph, assignment, 2, features, halo)) == str(plan)


def test_it_takes_no_more_memory_than_it_says() -> None:
    size = 1 << 20
    graph = gf.from_coo((torch.arange(2 * size) % size, (torch.arange(2 * size) * 7 + 1) % size), size)
    assignment = assign_nodes(graph, 2, "range")
    features = features_of(graph, {None: 1})
    tracemalloc.start()
    plan = plan_halo(graph, assignment, 2, features, 1 << 40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.share == 1.0
    assert peak <= (56 << 20) + 56 * size


ROW_BYTES = 2 + 96


def epoch(graph: gf.SamplingGraph, features: gf.FeatureStore) -> list[gf.MiniBatch]:
    """Return the mini-batches of an epoch, with all features."""
    sizes: Any = graph.num_nodes
    kinds = list(sizes) if isinstance(sizes, dict) else [None]
    items: Any = gf.ItemSet(sizes if kinds == [None] else sizes["user"], names="seeds")
    pipe = gf.ItemSampler(items if kinds == [None] else gf.HeteroItemSet({"user": items}), 45, shuffle=True)
    names: Any = list(graphs.FEATURES) if kinds == [None] else {kind: list(graphs.FEATURES) for kind in kinds}
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


def run_parts(root: Path, num_parts: int) -> list[Found]:
    """Return what each rank found, and count what others were asked."""

    def work(rank: int, peers: Peers) -> Found:
        part = open_part(root, rank, check=True)
        batches = epoch(PartitionedGraph(part.graph, peers), part.partitioned_features(peers))
        counts = [count_rows(part, batch) for batch in batches]
        looked_up, copied = (sum(count[number] for count in counts) for number in range(2))
        return Found([digest(batch) for batch in batches], looked_up, copied, peers.traffic)

    return in_threads(num_parts, work)


def count_rows(part: StoredPart, batch: gf.MiniBatch) -> tuple[int, int]:
    """Return how many rows of other parts a mini-batch has, and of how many of them the part has copies."""
    nodes: Any = batch.input_nodes
    looked_up = copied = 0
    for kind, ids in (nodes if isinstance(nodes, dict) else {None: nodes}).items():
        for name in graphs.FEATURES:
            key = gf.FeatureKey("node", kind, name)
            remote = ids[part.books[key].owners_of(ids) != part.graph.number]
            looked_up += len(remote)
            copied += int(torch.isin(remote, part.halo[key].of.ids).sum()) if part.halo else 0
    return looked_up, copied


def assign(graph: gf.FusedCSCSamplingGraph, owning: int) -> Any:
    """Return the part of each node; those parts that are left own none."""
    sizes = graphs.sizes_of(graph)
    found = {kind: numbers(size, owning, 70 + number) for number, (kind, size) in enumerate(sizes.items())}
    return found.get(None, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "num_parts", "owning"),
    [(graphs.plain, 2, 2), (graphs.typed, 3, 2), pytest.param(graphs.plain, 3, 3, marks=pytest.mark.thorough)],
)
def test_copies_are_read_rather_than_asked_for_and_mini_batches_stay_the_same(
    make: Callable[[], gf.FusedCSCSamplingGraph],
    num_parts: int,
    owning: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = make()
    features, parts = graphs.codes_of(graph), assign(graph, owning)
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


def test_ranks_may_differ_about_copies_and_without_them_updates_are_seen(tmp_path: Path) -> None:
    graph = graphs.plain()
    root = write_partition(tmp_path / "parts", graph, assign(graph, 2), 2, graphs.codes_of(graph), 1 << 30)
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

    (before, with_copies), (_, without) = in_threads(2, work)
    assert torch.equal(before, torch.arange(100.0))
    assert without.count_nonzero() == 0 < with_copies.count_nonzero()


def test_copies_are_read_where_a_rank_has_its_own_rows_on_disk() -> None:
    values = torch.arange(20.0).view(10, 2)
    book = PartBook.from_assignment(torch.tensor([1, 1, 1, 0, 0, 1, 1, 0, 1, 1]))
    asked = torch.tensor([9, 3, 9, 1, 0, 5])

    def work(rank: int, peers: Peers) -> None:
        own = cut_rows(values, book, rank)
        for copied in ([1, 6], [], [0, 1, 2, 5, 6, 8, 9]):
            ids = torch.tensor(copied if rank == 0 else [], dtype=torch.int64)
            halo = HaloRows(HaloIds(ids, 10), values[ids], own)
            feature = PartitionedFeature(Elsewhere(own) if rank == 0 else own, book, peers, halo=halo)
            for some in (asked, asked.int(), asked[1:2], asked[:0]):
                assert torch.equal(feature.read(some), values[some]), copied

    in_threads(2, work)


def test_copies_that_do_not_fit_are_refused() -> None:
    ids, own = HaloIds(torch.tensor([1, 4]), 10), torch.zeros(5, 2)
    shape = r"must be 2 of shape \(2,\), one per id, but have shape \(3, 2\)"
    dtype = "must be torch.float32 as those of the part, but are torch.float64"
    check_refused(
        [
            (lambda: HaloIds(torch.tensor([2, 2]), 10).offsets, ValueError, "must ascend"),
            (lambda: HaloIds(torch.tensor([4, 10]), 10).offsets, ValueError, r"lie in 0 \.\. 9"),
            (lambda: HaloIds(torch.tensor([-1, 3]), 10).offsets, ValueError, "lie"),
            (lambda: HaloRows(ids, torch.zeros(3, 2), own), ValueError, shape),
            (lambda: HaloRows(ids, torch.zeros(2, 1), own), ValueError, r"but have shape \(2, 1\)"),
            (lambda: HaloRows(ids, torch.zeros(2, 2).double(), own), ValueError, dtype),
        ]
    )
