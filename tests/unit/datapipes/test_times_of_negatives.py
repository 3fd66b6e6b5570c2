"""Negatives have the times of their edges, whichever stage draws them and whichever sampler follows."""

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from graphfeed.ops.arguments import UnknownName
from tests.kinds.pipelines import random_edges
from tests.kinds.stages import BUILDERS
from tests.kinds.tensors import tensor

SIZES = {"user": 12, "item": 9}
LIKES, LIKED, KNOWS = "user:likes:item", "item:liked_by:user", "user:knows:user"
EDGES = {
    kind: random_edges(SIZES[kind.split(":")[0]], SIZES[kind.split(":")[2]], 90, seed)
    for seed, kind in enumerate((LIKES, LIKED, KNOWS))
}
TIMES = {kind: torch.randperm(90, generator=torch.Generator().manual_seed(seed)) for seed, kind in enumerate(EDGES)}
BORN = torch.arange(12) % 7
TYPED = gf.from_coo(EDGES, SIZES, edge_attributes={"time": TIMES})
PLAIN = gf.from_coo(EDGES[KNOWS], 12, edge_attributes={"time": TIMES[KNOWS]}, node_attributes={"born": BORN})
WINDOW = 40
COLUMNS: dict[tuple[str, int], list[tuple[int, int]]] = {}
"""The time and the id of each edge to a node."""
for name, (_, ends) in EDGES.items():
    for number, end in enumerate(ends.tolist()):
        COLUMNS.setdefault((name, end), []).append((int(TIMES[name][number]), number))


class Interleaved(gf.NegativeSampler):
    """A user-defined sampler whose negatives come before their edge, last edge first."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        count, each = len(seeds), 1 + self.negative_ratio
        indexes = torch.arange(count).flip(0).repeat_interleave(each)
        rows, labels = seeds[indexes].clone(), torch.zeros(count * each)
        labels[self.negative_ratio :: each] = 1
        rows[labels == 0, 1] = (rows[labels == 0, 1] + 1) % 9
        return rows, labels, indexes


def uniform(pipe: gf.Datapipe, graph: gf.SamplingGraph, ratio: float) -> gf.Datapipe:
    return pipe.sample_uniform_negative(graph, int(ratio))


def binary(pipe: gf.Datapipe, graph: gf.SamplingGraph, ratio: float) -> gf.Datapipe:
    return pipe.sample_negative_pairs(graph, "binary", ratio)


def triplet(pipe: gf.Datapipe, graph: gf.SamplingGraph, ratio: float) -> gf.Datapipe:
    return pipe.sample_negative_pairs(graph, "triplet", ratio, gf.NegativeQuery(strict=True))


def twice(pipe: gf.Datapipe, graph: gf.SamplingGraph, ratio: float) -> gf.Datapipe:
    return binary(pipe, graph, ratio).sample_uniform_negative(graph, 2)


def by_user(pipe: gf.Datapipe, graph: gf.SamplingGraph, ratio: float) -> gf.Datapipe:
    return Interleaved(pipe, int(ratio))


NEGATIVES: dict[Any, type] = {
    uniform: gf.UniformNegativeSampler,
    binary: gf.PairNegativeSampler,
    triplet: gf.PairNegativeSampler,
    twice: gf.PairNegativeSampler,
    by_user: Interleaved,
}
RATIOS = [(draw, ratio) for draw in NEGATIVES for ratio in (1, 3)] + [(draw, 0.4) for draw in (binary, twice)]
RATIOS += [(binary, 1.5)]
SAMPLERS: list[tuple[Any, dict[str, Any]]] = [(kind, {}) for kind in BUILDERS if issubclass(kind, gf.TemporalSampler)]
SAMPLERS += [(gf.TemporalNeighborSampler, options) for options in ({"strategy": "latest"}, {"disjoint": True})]


def items_of(kind: str, count: int, shape: str) -> gf.ItemSet:
    times = TIMES[kind][:count]
    members = [
        EDGES[kind].T[:count].contiguous(),
        torch.stack([times, times + 30], dim=1) if shape == "ends" else times,
    ]
    names = ["seeds", "timestamp"]
    if shape == "windows":
        members.append(times % 3 * WINDOW // 2 + 1)
        names.append("pre_time_window")
    return gf.ItemSet(tuple(members), names=tuple(names))


def of_type(kind: str | None, values: Any) -> Any:
    return values if kind is None else values[kind]


def by_rows(values: torch.Tensor, rows: torch.Tensor, indexes: torch.Tensor) -> list[list[int]]:
    """Return the value of both endpoints of each row, one after the other."""
    return [
        values[index].expand(2).tolist() if values.dim() == 1 else values[index].tolist()
        for index, _ in zip(indexes.tolist(), rows, strict=True)
    ]


def expected(batch: gf.MiniBatch, kind: str | None, pick: Any) -> list[list[tuple[str, list[int]]]]:
    """Return, for both endpoints of each row, the ids of all earlier edges that lead to it, by edge type."""
    seeds, indexes = pick(batch.seeds), pick(batch.indexes)
    times = by_rows(pick(batch.timestamp), seeds, indexes)
    windows = None if batch.pre_time_window is None else by_rows(pick(batch.pre_time_window), seeds, indexes)
    ends = (KNOWS if kind is None else kind).split(":")[::2]
    found = []
    for row, pair in enumerate(seeds.tolist()):
        for end, node in enumerate(pair):
            until, since = times[row][end], -1 if windows is None else times[row][end] - windows[row][end]
            kinds = [other for other in ([KNOWS] if kind is None else EDGES) if other.split(":")[2] == ends[end]]
            edges = {other: COLUMNS.get((other, node), []) for other in kinds}
            found.append([(other, [own for time, own in edges[other] if since < time < until]) for other in kinds])
    return found


def sampled(batch: gf.MiniBatch, kind: str | None, pick: Any) -> list[list[tuple[str, list[int]]]]:
    """Return the rows of the only hop in the same form."""
    (hop,) = batch.sampled_subgraphs
    ends = (KNOWS if kind is None else kind).split(":")[::2]
    found = []
    for pair in pick(batch.compacted_seeds).tolist():
        for end, column in zip(ends, pair, strict=True):
            of_node = []
            for other in [KNOWS] if kind is None else EDGES:
                csc, ids = (
                    (hop.sampled_csc, hop.original_edge_ids)
                    if kind is None
                    else (hop.sampled_csc[other], hop.original_edge_ids[other])
                )
                if other.split(":")[2] == end:
                    of_node.append((other, sorted(ids[csc.indptr[column] : csc.indptr[column + 1]].tolist())))
            found.append(of_node)
    return found


@pytest.mark.parametrize("shape", ["rows", "ends", "windows"])
def test_no_row_sees_its_future_and_none_loses_its_past(shape: str) -> None:
    one, several = items_of(KNOWS, 7, shape), {kind: items_of(kind, 5, shape) for kind in (LIKES, KNOWS)}
    for (draw, ratio), (sampler, options) in product(RATIOS, SAMPLERS):
        for graph, items in ((PLAIN, one), (TYPED, gf.HeteroItemSet(several))):
            pipe = draw(gf.ItemSampler(items, 4, shuffle=True), graph, ratio)
            for batch in sampler(pipe, graph, [-1], edge_timestamp_attr_name="time", **options):
                for kind in [None] if graph is PLAIN else batch.seeds:
                    pick = partial(of_type, kind)
                    assert sampled(batch, kind, pick) == expected(batch, kind, pick), (draw, ratio, kind)


@pytest.mark.parametrize(("mode", "shape"), [("binary", "rows"), ("triplet", "ends")])
def test_drawn_nodes_exist_at_the_times_of_their_ends(mode: Any, shape: str) -> None:
    pairs, times = EDGES[KNOWS].T, torch.arange(90) % 7
    times = torch.stack([times, times.flip(0)], dim=1) if shape == "ends" else times
    items = gf.ItemSet((pairs, times), names=("seeds", "timestamp"))
    (batch,) = gf.ItemSampler(items, 90).sample_negative_pairs(PLAIN, mode, 3, gf.NegativeQuery(time_name="born"))
    drawn, indexes = tensor(batch.seeds)[90:], tensor(batch.indexes)[90:]
    limits = torch.tensor(by_rows(times, drawn, indexes))
    ends = slice(0, 2) if mode == "binary" else slice(1, 2)
    assert (BORN[drawn[:, ends]] <= limits[:, ends]).all()
    assert set(BORN[drawn[:, 1]].tolist()) == set(range(7))


def test_times_of_negatives_are_looked_up_when_the_stage_is_made() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(EDGES[KNOWS].T, names="seeds"), 9)
    with pytest.raises(UnknownName, match=r"Node attribute bron does not exist.*'born'"):
        pipe.sample_negative_pairs(PLAIN, "binary", query=gf.NegativeQuery(time_name="bron"))
    graph = gf.from_coo(EDGES[KNOWS], 12, node_attributes={"born": BORN / 2})
    with pytest.raises(TypeError, match=r"must be torch.int64, but is torch.float32"):
        pipe.sample_negative_pairs(graph, "binary", query=gf.NegativeQuery(time_name="born"))


def test_negatives_by_time_need_items_with_times() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(EDGES[KNOWS].T, names="seeds"), 9)
    for mode in ("binary", "triplet"):
        with pytest.raises(ValueError, match="time_name='born', but the mini-batch has no timestamp; name an item of"):
            next(iter(pipe.sample_negative_pairs(PLAIN, mode, 1, gf.NegativeQuery(time_name="born"))))


def test_pyg_data_has_the_time_of_each_negative() -> None:
    pytest.importorskip("torch_geometric")
    for draw, (graph, kind) in product(NEGATIVES, ((PLAIN, None), (TYPED, LIKES))):
        items = items_of(kind or KNOWS, 7, "rows")
        source = gf.ItemSampler(items if kind is None else gf.HeteroItemSet({kind: items}), 4)
        for batch in draw(source, graph, 2).sample_neighbor(graph, [2]):
            times, indexes = (of_type(kind, own) for own in (batch.timestamp, batch.indexes))
            data = batch.to_pyg_data() if kind is None else batch.to_pyg_data()[tuple(kind.split(":"))]
            assert data.edge_label_time.tolist() == times[indexes].tolist()
            assert len(data.edge_label_time) == data.edge_label_index.shape[1]


@pytest.mark.parametrize("kind", [None, LIKES])
def test_labels_of_items_stay_and_negatives_get_zeros(kind: str | None) -> None:
    given = torch.tensor([3, 0, 5, 4])
    for draw, labels in product(NEGATIVES, (given, torch.stack([given, given + 1], dim=1), given / 2)):
        items = gf.ItemSet((EDGES[kind or KNOWS].T[:4].contiguous(), labels), names=("seeds", "labels"))
        source = gf.ItemSampler(items if kind is None else gf.HeteroItemSet({kind: items}), 4)
        (batch,) = draw(source, PLAIN if kind is None else TYPED, 2)
        found, seeds = of_type(kind, batch.labels), of_type(kind, batch.seeds)
        rows = range(2, len(seeds), 3) if draw is by_user else range(4)
        order = [3, 2, 1, 0] if draw is by_user else [0, 1, 2, 3]
        assert found.dtype == labels.dtype
        assert torch.equal(found[list(rows)], labels[order])
        assert not found[[row for row in range(len(seeds)) if row not in rows]].any()


class Turned(gf.NegativeSampler):
    """Returns the same number of rows in another order."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        return seeds.flip(0), torch.zeros(len(seeds)), torch.arange(len(seeds)).flip(0)


def test_a_hook_that_only_reorders_is_refused_where_times_would_stay_behind() -> None:
    seeds, times = torch.tensor([[1, 2], [3, 4]]), torch.tensor([5, 6])
    stage = Turned(gf.IterableSource([]), 1)
    assert stage(gf.MiniBatch(seeds=seeds)).seeds.tolist() == [[3, 4], [1, 2]]
    with pytest.raises(ValueError, match="Turned returned the 2 edges in another order, but not their times"):
        stage(gf.MiniBatch(seeds=seeds, timestamp=times, key=Key(0, 0, 0)))
