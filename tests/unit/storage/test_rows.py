"""The rows of a hop: with nodes merged, not merged, merged inside trees, or sampled only once."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.storage.graph import compact_hop, join_hops
from tests.kinds import reference
from tests.kinds.chance import check_counts, check_unrelated
from tests.kinds.digests import assert_same
from tests.kinds.pipelines import random_edges
from tests.kinds.refusals import Refusal, check_refused

DTYPES = [torch.int32, torch.int64]
IDS = st.lists(st.integers(0, 9) | st.sampled_from([2**31 - 1, 12345]), max_size=12)
KINDS = ["user", "item", "shop"]


def csc(columns: list[list[int]], dtype: torch.dtype = torch.int64) -> gf.CSCFormatBase:
    indices = torch.tensor(reference.join(columns), dtype=dtype)
    return gf.CSCFormatBase(torch.tensor(reference.running_sum(map(len, columns))), indices)


def columns_of(count: int) -> Any:
    return st.lists(IDS, min_size=count, max_size=count)


@st.composite
def typed(draw: st.DrawFn) -> tuple[dict[str, list[int]], dict[str, list[list[int]]]]:
    """Return seeds of some node types, and columns of some edge types."""
    seeds = {kind: draw(IDS) for kind in draw(st.permutations(KINDS))}
    for kind in draw(st.sets(st.sampled_from(KINDS), max_size=2)):
        seeds[kind] = []
    pairs = draw(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), max_size=5))
    columns = {f"{a}:r{place}:{b}": draw(columns_of(len(seeds[b]))) for place, (a, b) in enumerate(pairs)}
    return seeds, columns


def tensors(lists: dict[str, list[int]], dtype: torch.dtype = torch.int64) -> dict[str, torch.Tensor]:
    return {kind: torch.tensor(ids, dtype=dtype) for kind, ids in lists.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), seeds=IDS)
def test_merging_is_equal_to_the_reference(dtype: torch.dtype, data: st.DataObject, seeds: list[int]) -> None:
    columns = data.draw(columns_of(len(seeds)))
    given_csc, given_seeds = csc(columns, dtype), torch.tensor(seeds, dtype=dtype)
    rows, compacted, offsets = gf.unique_and_compact_csc_formats(given_csc, given_seeds)
    (wanted_rows,), (local,) = reference.compact([seeds], [reference.join(columns)], [0])
    assert_same(rows, torch.tensor(wanted_rows, dtype=dtype))
    assert_same(compacted.indices, torch.tensor(local, dtype=dtype))
    assert_same(compacted.indptr, given_csc.indptr)
    assert offsets.tolist() == [0, len(wanted_rows)]


@pytest.mark.parametrize("dtype", DTYPES)
@given(parts=typed())
def test_merging_by_type_is_equal_to_the_reference(dtype: torch.dtype, parts: Any) -> None:
    seeds, columns = parts
    cscs = {kind: csc(part, dtype) for kind, part in columns.items()}
    rows, compacted, offsets = gf.unique_and_compact_csc_formats(cscs, tensors(seeds, dtype))
    sources = [list(seeds).index(kind.split(":")[0]) for kind in columns]
    wanted, local = reference.compact(list(seeds.values()), list(map(reference.join, columns.values())), sources)
    assert_same(rows, tensors(dict(zip(seeds, wanted, strict=True)), dtype))
    assert list(compacted) == list(columns)
    for part, places in zip(compacted.values(), local, strict=True):
        assert_same(part.indices, torch.tensor(places, dtype=dtype))
    assert {kind: part.tolist() for kind, part in offsets.items()} == {
        kind: [0, len(ids)] for kind, ids in zip(seeds, wanted, strict=True)
    }


@given(parts=typed())
def test_without_merging_each_edge_has_a_row(parts: Any) -> None:
    """Rows are the seeds, then the sources in the order of the edges; times are those of the columns."""
    seeds, columns = parts
    cscs = {kind: csc(part) for kind, part in columns.items()}
    times = {
        kind: [100 * place + number for number in range(len(ids))] for place, (kind, ids) in enumerate(seeds.items())
    }
    rows, compacted, row_times = gf.compact_csc_format(cscs, tensors(seeds), tensors(times))
    assert_same(gf.compact_csc_format(cscs, tensors(seeds)), (rows, compacted))
    wanted = {kind: list(ids) for kind, ids in seeds.items()}
    wanted_times = {kind: list(own) for kind, own in times.items()}
    for edge_type, part in columns.items():
        source, _, end = edge_type.split(":")
        first = len(wanted[source])
        wanted[source] += reference.join(part)
        wanted_times[source] += reference.join([time] * len(ids) for time, ids in zip(times[end], part, strict=True))
        assert_same(compacted[edge_type].indices, torch.arange(first, len(wanted[source])))
        assert_same(compacted[edge_type].indptr, cscs[edge_type].indptr)
    assert_same(rows, tensors(wanted))
    assert_same(row_times, tensors(wanted_times))


def test_a_type_that_is_no_source_keeps_its_seeds() -> None:
    cscs = {"user:likes:item": csc([[3], [4]])}
    rows, _, _ = gf.unique_and_compact_csc_formats(cscs, {"item": torch.tensor([8, 9])})
    assert_same(rows, {"item": torch.tensor([8, 9]), "user": torch.tensor([3, 4])})
    rows, _ = gf.compact_csc_format(cscs, {"item": torch.tensor([8, 9])})
    assert_same(rows, {"item": torch.tensor([8, 9]), "user": torch.tensor([3, 4])})


def test_ids_have_all_64_bits_and_it_can_be_waited_for() -> None:
    high = 2**63 - 1
    parts = {"a:r:b": csc([[high]]), "b:s:b": csc([[high]])}, {"b": torch.tensor([high])}
    rows, compacted, _ = gf.unique_and_compact_csc_formats(*parts)
    assert_same(rows, {"b": torch.tensor([high]), "a": torch.tensor([high])})
    assert_same([part.indices for part in compacted.values()], [torch.tensor([0]), torch.tensor([0])])
    assert_same(gf.unique_and_compact_csc_formats(*parts, async_op=True).wait()[0], rows)


def test_a_hop_gets_its_rows() -> None:
    hop = gf.from_coo(torch.tensor([[1, 2, 1], [0, 0, 3]]), num_nodes=4).in_subgraph(torch.tensor([0, 3]))
    for deduplicate, rows in ((True, [0, 3, 1, 2]), (False, [0, 3, 1, 2, 1])):
        layer = compact_hop(hop, deduplicate=deduplicate)
        assert_same(layer.original_row_node_ids, torch.tensor(rows))
        assert_same(layer.original_edge_ids, hop.original_edge_ids)


ONE = torch.tensor([1])


def compacted(cscs: Any, seeds: Any) -> Callable[[], object]:
    """Return a call of both functions, which raise the same errors for parts that don't match."""

    def call() -> None:
        with pytest.raises((TypeError, ValueError)) as caught:
            gf.compact_csc_format(cscs, seeds)
        with pytest.raises(caught.type, match=re.escape(str(caught.value))):
            gf.unique_and_compact_csc_formats(cscs, seeds)
        raise caught.value

    return call


def at_times(cscs: Any, seeds: Any, times: Any) -> Callable[[], object]:
    return lambda: gf.compact_csc_format(cscs, seeds, times)


def merged(cscs: Any, **options: Any) -> Callable[[], object]:
    return lambda: gf.unique_and_compact_csc_formats(cscs, torch.tensor([0]), **options)


REFUSED: list[Refusal] = [
    (compacted(csc([[1]]), {"a": ONE}), TypeError, "Edge type not supported in homogeneous graph: the columns"),
    (compacted({"a:r:a": csc([[1]])}, ONE), TypeError, "the columns are by edge type, but the seeds are a Tens"),
    (compacted(csc([[1]]), ONE.int()), TypeError, "ids of seeds and of columns must have the same dtype"),
    (compacted(csc([[1]]), torch.tensor([1, 2])), ValueError, "should correspond to indptr: there are 2 seeds"),
    (compacted({"a:r:b": csc([[1]])}, {"a": ONE}), ValueError, "there are 0 seeds, but 1 columns of 'a:r:b'"),
    (compacted({"a:b": csc([[1]])}, {"a": ONE}), ValueError, "must have three parts"),
    (at_times(csc([[1]]), ONE, torch.tensor([1, 2])), ValueError,
     "^dst_timestamps must have 1 values, one per seed, but has 2"),
    (at_times({"a:r:a": csc([[1]])}, {"a": ONE}, {}), ValueError,
     "^dst_timestamps must have 1 values, one per seed of type 'a', but has 0"),
    (merged(csc([[-1]])), ValueError, "neighbors must be ids of 0 or more, but hold -1"),
    (merged(csc([[-2]])), ValueError, "neighbors must be ids of 0 or more, but hold -2"),
    (merged(csc([[1]]), rank=1, world_size=2), ValueError, "rank and world_size must be 0 and 1, but are 1 and 2"),
    (lambda: compact_hop(gf.SampledSubgraph(csc([[1]])), deduplicate=True), ValueError,
     "the hop has no original_column_node_ids"),
]  # fmt: skip


def test_parts_that_do_not_belong_together() -> None:
    check_refused(REFUSED)


SEEDS = torch.tensor([4, 9, 4, 30])
KEYS = [11, 12, 13]


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(random_edges(80, 80, 300, 1), 80)


def request(*fanouts: int, **options: Any) -> gf.SamplingRequest:
    return gf.SamplingRequest([torch.tensor([fanout]) for fanout in reversed(fanouts)], only_new=True, **options)


def edges_of(hop: gf.SampledSubgraph) -> list[tuple[int, int]]:
    csc = hop.sampled_csc
    columns = torch.repeat_interleave(torch.arange(len(csc.indptr) - 1), csc.indptr.diff())
    return list(zip(csc.indices.tolist(), columns.tolist(), strict=True))


def test_trees_share_no_node() -> None:
    hops = make_graph().sample_hops(SEEDS, request(3, 3, disjoint=True), KEYS[:2])
    trees: Any = (join_hops(hops, disjoint=True).trees or {})[None]
    rows = hops[0].original_row_node_ids
    assert trees[:4].tolist() == [0, 1, 2, 3]
    assert len(set(zip(trees.tolist(), rows.tolist(), strict=True))) == len(rows)
    for hop in hops:
        assert all(trees[row] == trees[column] for row, column in edges_of(hop))


def test_a_minibatch_without_seeds_has_no_rows_of_trees() -> None:
    graph, asked = make_graph(), request(3, 3, disjoint=True)
    joined: list[Any] = [
        graph.sample_joined(SEEDS[:0], asked, KEYS[:2]),
        join_hops(graph.sample_hops(SEEDS[:0], asked, KEYS[:2]), disjoint=True),
    ]
    assert [own.trees[None].tolist() for own in joined] == [[], []]


def test_copies_of_a_seed_draw_independently_in_their_trees_and_alike_without() -> None:
    copies, size = 20_000, 4
    ends = torch.tensor([[1, 1, 2, 3, 4, 5], [0, 0, 1, 1, 1, 1]])
    graph = gf.from_coo(ends, 6, edge_attributes={"time": torch.arange(6)})
    items = gf.ItemSet((torch.zeros(copies, dtype=torch.int64), torch.full((copies,), 9)), ("seeds", "timestamp"))
    pipe: gf.Datapipe = gf.ItemSampler(items, copies)
    for disjoint in (True, False):
        for sampled in (
            pipe.sample_neighbor(graph, [1, 1], disjoint=disjoint),
            pipe.temporal_sample_neighbor(graph, [1, 1], edge_timestamp_attr_name="time", disjoint=disjoint),
        ):
            outer, inner = next(iter(sampled.with_seed(3))).sampled_subgraphs
            first, second = inner.original_edge_ids, outer.original_edge_ids[-copies:] - 2
            if disjoint:
                check_counts(torch.bincount(first, minlength=2), torch.ones(2))
                check_unrelated(second[::2], second[1::2], size)
            else:
                assert len(first.unique()) == 1


def test_a_tree_depends_on_its_number_and_not_on_other_seeds() -> None:
    graph, asked = make_graph(), request(3, 3, disjoint=True)
    others = torch.tensor([70, 9, 1, 30])
    pairs: list[Any] = [graph.sample_joined(seeds, asked, KEYS[:2]) for seeds in (SEEDS, others)]
    for tree, is_same in enumerate([False, True, False, True]):
        first, second = (own.edge_ids[None][own.trees[None][own.edges[None][1]] == tree] for own in pairs)
        assert (first.tolist() == second.tolist()) == is_same
