"""One hop on a GPU: whole warps read long columns, and no thread does many times as much as the others."""

from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops import check_edge_types, check_joined
from graphfeed.testing import limits
from tests.kinds.compare_kernels import moved
from tests.kinds.hops import changed, record, sample_one
from tests.stand_ins.counted_cuda import Counted, counting
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, check_equal


def check_each_order(cuda: Cuda, graph: ops.Graph, seeds: list[int], fanouts: list[int], **drawing: Any) -> None:
    """Compare one hop on a GPU, whichever thread comes first, with that of the CPU."""
    asked = torch.tensor(seeds), torch.tensor(fanouts)
    expected = sample_one(graph, *asked, 3, 4, **drawing)
    for order in cuda.each_order():
        with order, cuda.running():
            found = sample_one(moved(graph, cuda.put), cuda.put(asked[0]), asked[1], 3, 4, **drawing)
            check_equal(cuda, found, expected)


def test_columns_look_up_many_picks_each_by_itself(cuda: Cuda) -> None:
    check_each_order(cuda, record(torch.tensor([0, 130, 390])), [0, 1, 0, 1, 1], [60])


def test_a_large_column_is_read_by_a_whole_warp(cuda: Cuda) -> None:
    graph = record(torch.tensor([0, 5000]), torch.randint(0, 300, (5000,)))
    check_each_order(cuda, graph, [0], [40], method="labor")


@pytest.mark.parametrize("fanouts", [[-1], [-1, -1], [-1, 90]], ids=str)
def test_whole_columns_are_those_of_the_cpu(cuda: Cuda, fanouts: list[int]) -> None:
    indptr, types = torch.tensor([0, 0, 700, 703]), (torch.arange(703) // 600).to(torch.uint8)
    types[700:] = torch.tensor([0, 0, 1])
    for sums in (None, ops.cumulate_weights(indptr, torch.rand(703) > 0.8)):
        check_each_order(cuda, record(indptr, cumulative=sums, types=types, num_types=2), [1, 0, 2, 1, 0], fanouts)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fanouts", [[60, -1, 7], [-1, -1, -1], [-1], [60]], ids=str)
def test_large_columns_in_time_are_read_by_whole_warps(cuda: Cuda, fanouts: list[int], weighted: bool) -> None:
    indptr, types = torch.tensor([0, 70, 5000]), torch.arange(5000).sub(70).clamp(min=0).div(2000).to(torch.uint8)
    order = ops.order_by_time(indptr, torch.randint(0, 2000, (5000,)), types if len(fanouts) > 1 else None)
    assert order.times is not None
    order = order._replace(earliest=order.times - torch.randint(0, 900, (5000,)))
    if weighted:
        order = order._replace(cumulative=ops.cumulate_weights(indptr, torch.randint(0, 3, (5000,)).float()))
    columns = record(indptr, torch.arange(5000) % 2, types=types, num_types=3, by_column=order)
    seeds, at = torch.tensor([1, 0, 1]), torch.tensor([900, 1500, 1500])

    def sample(put: Any) -> ops.Picks:
        moments = {"times": put(at), "windows": put(torch.tensor([700, 1400, 1000]))}
        return sample_one(moved(columns, put), put(seeds), torch.tensor(fanouts), 5, **moments)

    expected = sample(lambda tensor: tensor)
    assert expected.offsets.diff().min() > 10
    with cuda.running():
        check_equal(cuda, sample(cuda.put), expected)


def test_pinned_columns_are_read_by_few_threads(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the launches of a device are not noted")
    graph, seeds = record(torch.arange(0, 4_004, 4)), torch.arange(1_000)
    expected = sample_one(graph, seeds, torch.tensor([2]), 5)
    for put, threads in ((cuda.pin, 256), (cuda.put, 1_024)):
        with limits(uva_threads=256), cuda.running():
            found = sample_one(record(put(graph.indptr)), cuda.put(seeds), torch.tensor([2]), 5)
            assert cuda.launches == [("count_plain_neighbors", threads), ("fill_plain_neighbors", threads)]
        check_equal(cuda, found, expected)


KEYS = (5, 6)


FANOUT = torch.tensor([5])


BY_TYPE = torch.tensor([-1, 3])


MOST, QUEUE = 4, 2500
"""How many times the mean of all threads one of them may do, and what it may do besides, whatever the size of the hub.

A warp alone in a block does eight times the mean. One thread enters the edges that compete for few places."""


class Hub:
    """A graph of four nodes, the first of which has all edges but a few."""

    def __init__(self, size: int) -> None:
        self.indptr = torch.tensor([0, size, size + 3, size + 3, size + 7])
        self.edges = size + 7
        self.indices = torch.arange(self.edges) * 7919 % 4
        self.seeds = torch.tensor([1, 0, 2, 3])
        self.types = (torch.arange(self.edges) % size >= size // 2).to(torch.uint8)
        self.types[size:] = torch.tensor([0, 0, 1, 0, 0, 0, 1])
        few = torch.arange(self.edges) >= size - 3
        self.weights = few.float() + (torch.arange(self.edges) < 1)
        self.times = torch.arange(self.edges) * 31 % 1000


def weighted(hub: Hub, put: Any) -> Any:
    """Few edges have a weight, so that all of the column must be read."""
    sums = ops.cumulate_weights(put(hub.indptr), put(hub.weights))
    graph, seeds = record(put(hub.indptr), cumulative=sums), put(hub.seeds)
    typed = record(put(hub.indptr), cumulative=sums, types=put(hub.types), num_types=2)
    picks = [sample_one(typed, seeds, fanouts, 1) for fanouts in (FANOUT, BY_TYPE)]
    return [sums, *picks, sample_one(graph, seeds, torch.tensor([-1]), 1)]


def whole_types(hub: Hub, put: Any) -> Any:
    """All edges of one type, and three of the other."""
    types = put(hub.types)
    check_edge_types(put(hub.indptr.clone()), types, 2)
    check_joined(
        put(hub.indptr.clone()), put(hub.indices), types, torch.tensor([0, 4]), torch.zeros(2, 2, dtype=torch.int64)
    )
    picks = sample_one(record(put(hub.indptr), types=types, num_types=2), put(hub.seeds), BY_TYPE, 1)
    grouped = ops.group_by_type(picks, types, torch.tensor([0, 4]), torch.tensor([0, 0]), torch.int64)
    return [picks.offsets, grouped]


def labor(hub: Hub, put: Any) -> Any:
    """The smallest variates of all edges, of all neighbours alike, and their first events."""
    graph, seeds = record(put(hub.indptr), put(hub.indices)), put(hub.seeds)
    many = changed(graph, indices=put(torch.arange(hub.edges)))
    return [
        sample_one(columns, seeds, FANOUT, *KEYS, method="labor", replace=replace)
        for replace in (False, True)
        for columns in (graph, many)
    ]


def in_time(hub: Hub, put: Any) -> Any:
    """Edges before a time, with a second time and without, the latest and all; by LABOR and not."""
    order = ops.order_by_time(hub.indptr, hub.times)
    assert order.times is not None
    earliest, sums = put(order.times - 900), put(ops.cumulate_weights(hub.indptr, hub.weights))
    plain = moved(order, put)

    def graph(**more: torch.Tensor) -> ops.Graph:
        return record(put(hub.indptr), put(hub.indices), by_column=plain._replace(**more))

    seeds, times, windows = put(hub.seeds), put(torch.full((4,), 2000)), put(torch.full((4,), 1800))
    whole = torch.tensor([-1])
    return [
        sample_one(graph(cumulative=sums), seeds, FANOUT, 1, times=times),
        sample_one(graph(), seeds, whole, 1, times=times, method="latest"),
        sample_one(graph(earliest=earliest, cumulative=sums), seeds, whole, 1, times=times, windows=windows),
        sample_one(graph(earliest=earliest), seeds, FANOUT, *KEYS, times=times, windows=windows, method="labor"),
    ]


def uneven(counts: list[Counted]) -> list[Counted]:
    """Return those launches in which a thread did too much."""
    return [own for own in counts if own.is_kernel and own.most > MOST * own.accesses / own.threads + QUEUE]


@pytest.mark.parametrize("size", [1 << 17, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.thorough])])
@pytest.mark.parametrize("sample", [weighted, whole_types, labor, in_time], ids=lambda sample: sample.__name__)
def test_threads_share_a_hub(cuda: Cuda, sample: Any, size: int) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the accesses of a device are not counted")
    hub = Hub(size)
    expected = sample(hub, lambda tensor: tensor)
    with cuda.running(), counting() as counts:
        found = sample(hub, cuda.put)
        for mine, its in zip(found, expected, strict=True):
            check_equal(cuda, mine, its)
    assert sum(own.accesses for own in counts) > size
    assert uneven(counts) == []


@pytest.mark.parametrize("fanouts", [[10, 10, 10, 10], [-1, 10, 10, 10]], ids=str)
@pytest.mark.parametrize("by_weight", [False, True])
def test_the_threads_of_a_warp_pick_at_once(cuda: Cuda, fanouts: list[int], by_weight: bool) -> None:
    """Each column is long enough for a warp, in which one thread would pick what needs one draw after the other."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the accesses of a device are not counted")
    columns, degree = 128, 200
    indptr, types = torch.arange(columns + 1) * degree, (torch.arange(columns * degree) % degree * 4 // degree).byte()
    sums = ops.cumulate_weights(indptr, torch.rand(columns * degree)) if by_weight else None

    def sample(put: Any) -> ops.Picks:
        weights = None if sums is None else put(sums)
        graph = record(put(indptr), cumulative=weights, types=put(types), num_types=4)
        return sample_one(graph, put(torch.arange(columns)), torch.tensor(fanouts), 1)

    expected = sample(lambda tensor: tensor)
    with cuda.running(), counting() as counts:
        check_equal(cuda, sample(cuda.put), expected)
    assert uneven(counts) == []
