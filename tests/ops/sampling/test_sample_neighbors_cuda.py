from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds, put_columns
from tests.ops.hops import sample_one

SHARES = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1])


TYPE_DTYPES = [None, torch.uint8, torch.int16, torch.int32, torch.int64]
CASES = [*product(["uniform"], TYPE_DTYPES), *product(["labor"], TYPE_DTYPES[:2])]


@pytest.mark.parametrize(("method", "type_dtype"), CASES, ids=str)
@given(graphs_and_seeds(), st.tuples(KEYS, KEYS), SHARES, st.data())
def test_picks_are_those_of_the_cpu(
    cuda: Cuda,
    method: Any,
    type_dtype: torch.dtype | None,
    given: tuple[Graph, list[int]],
    keys: tuple[int, int],
    share: int,
    data: st.DataObject,
) -> None:
    graph, (starts, ids) = given[0], data.draw(st.sampled_from([*product(ID_DTYPES, ID_DTYPES)]))
    replace, weighted = data.draw(st.booleans()), data.draw(st.booleans())
    columns, seeds = graph.arrays(starts, ids, weighted=weighted, types=type_dtype), torch.tensor(given[1], dtype=ids)
    fanouts = torch.tensor([data.draw(FANOUTS) for _ in range(columns.num_types)])

    def sample(put: Any) -> ops.Picks:
        drawing = ops.Drawing(method, replace, share)
        return ops.sample_neighbors(put_columns(put, columns), ops.OneHop(put(seeds), fanouts, keys, drawing))

    expected = sample(lambda tensor: tensor)
    for order in cuda.each_order() if method == "labor" else [nullcontext()]:
        with order, cuda.running():
            check_equal(cuda, sample(cuda.put), expected)


@pytest.mark.parametrize("type_dtype", TYPE_DTYPES[1:])
@given(graphs_and_seeds(), KEYS)
def test_groups_are_those_of_the_cpu(
    cuda: Cuda, type_dtype: torch.dtype, given: tuple[Graph, list[int]], key: int
) -> None:
    (graph, seeds), half = given, len(given[1]) // 2
    columns, types = torch.tensor([0, half, len(seeds)]), torch.tensor(graph.types, dtype=type_dtype)
    # Each type ends at the columns of its own node type: even ones at the first half of the seeds.
    kinds, halves = torch.arange(graph.num_types) % 2, (seeds[:half], seeds[half:])
    first, second = (
        sample_one(graph.arrays(types=type_dtype), torch.tensor(part).long(), torch.where(kinds == kind, 5, 0), key)
        for kind, part in enumerate(halves)
    )
    offsets = torch.cat([first.offsets, second.offsets[1:] + first.offsets[-1]])
    picks = ops.Picks(offsets, torch.cat([first.positions, second.positions]))
    expected = group(picks, types, columns, kinds)
    with cuda.running():
        check_equal(cuda, group(put_columns(cuda.put, picks), cuda.put(types), columns, kinds), expected)


def group(picks: ops.Picks, types: torch.Tensor, columns: torch.Tensor, ends: torch.Tensor) -> ops.TypedPicks:
    return ops.group_by_type(ops.Picks(*(part.clone() for part in picks)), types, columns, ends, torch.int32)


def check_each_order(cuda: Cuda, graph: ops.StaticGraph, seeds: list[int], fanouts: list[int], **drawing: Any) -> None:
    """Compare one hop on a GPU, whichever thread comes first, with that of the CPU."""
    asked = torch.tensor(seeds), torch.tensor(fanouts)
    expected = sample_one(graph, *asked, 3, 4, **drawing)
    for order in cuda.each_order():
        with order, cuda.running():
            found = sample_one(put_columns(cuda.put, graph), cuda.put(asked[0]), asked[1], 3, 4, **drawing)
            check_equal(cuda, found, expected)


def test_columns_look_up_many_picks_each_by_itself(cuda: Cuda) -> None:
    check_each_order(cuda, ops.StaticGraph(torch.tensor([0, 130, 390])), [0, 1, 0, 1, 1], [60])


def test_a_large_column_is_read_by_a_whole_warp(cuda: Cuda) -> None:
    graph = ops.StaticGraph(torch.tensor([0, 5000]), torch.randint(0, 300, (5000,)))
    check_each_order(cuda, graph, [0], [40], method="labor")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fanouts", [[-1], [-1, -1], [-1, 90]], ids=str)
def test_whole_columns_are_those_of_the_cpu(cuda: Cuda, fanouts: list[int], weighted: bool) -> None:
    indptr, types = torch.tensor([0, 0, 700, 703]), (torch.arange(703) // 600).to(torch.uint8)
    types[700:] = torch.tensor([0, 0, 1])
    sums = ops.cumulate_weights(indptr, torch.rand(703) > 0.8) if weighted else None
    check_each_order(cuda, ops.StaticGraph(indptr, cumulative=sums, types=types, num_types=2), [1, 0, 2, 1, 0], fanouts)


def test_a_wrong_seed_is_named(cuda: Cuda) -> None:
    graph = ops.StaticGraph(torch.tensor([0, 1, 2]))
    with cuda.running(), pytest.raises(ValueError, match=r"seeds must lie in 0 .. 1, but holds 2"):
        sample_one(put_columns(cuda.put, graph), cuda.put(torch.tensor([2])), torch.tensor([1]), 0)


def test_a_graph_elsewhere_is_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"but graph.indptr lies on cpu"):
        sample_one(ops.StaticGraph(torch.tensor([0, 1])), cuda.put(torch.tensor([0])), torch.tensor([1]), 0)


def test_pinned_columns_are_read_by_few_threads(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the launches of a device are not noted")
    graph, seeds = ops.StaticGraph(torch.arange(0, 4_004, 4)), torch.arange(1_000)
    expected = sample_one(graph, seeds, torch.tensor([2]), 5)
    monkeypatch.setattr("graphfeed.ops.memory.pinned.LIMIT.threads", 256)
    for put, threads in ((cuda.pin, 256), (cuda.put, 1_024)):
        with cuda.running():
            found = sample_one(graph._replace(indptr=put(graph.indptr)), cuda.put(seeds), torch.tensor([2]), 5)
            assert cuda.launches == [("count_neighbors", threads), ("fill_neighbors", threads)]
        check_equal(cuda, found, expected)
