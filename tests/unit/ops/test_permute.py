"""Orders equal the reference, have each item once, and are as random as chance makes them."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops import MASK
from graphfeed.ops.sampling.permute import SORTED_UP_TO
from tests.kinds import reference
from tests.kinds.chance import check_chi_square, check_counts, check_orders
from tests.kinds.graphs import KEYS

LARGE = SORTED_UP_TO + 1


BUCKETS = 8


SIZES = st.one_of(st.integers(0, 50), st.sampled_from([4095, 4096, 4097, 8191, 8192, 8193, 65536, 10**6, 2**31, 2**33]))


def bucket(items: torch.Tensor, size: int) -> torch.Tensor:
    return items * BUCKETS // size


def bucket_sizes(size: int) -> torch.Tensor:
    ends = torch.tensor([-(-number * size // BUCKETS) for number in range(BUCKETS + 1)])
    return ends.diff().double()


@given(SIZES, KEYS, st.data())
def test_equal_to_the_reference(size: int, key: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, min(size, start + 30)))
    result = ops.permute(start, stop, size, key)
    assert result.dtype == torch.int64
    assert result.tolist() == reference.permute(start, stop, size, key)
    # Writes of a caller don't affect later results.
    result.zero_()
    assert ops.permute(start, stop, size, key).tolist() == reference.permute(start, stop, size, key)


def test_each_item_has_one_place_also_in_the_parts_of_an_order() -> None:
    for size, key in product([0, 1, 2, 3, 100, 4096, 4097, 4098, 16384, 16385, 20_003], [0, 1, MASK]):
        whole = ops.permute(0, size, size, key)
        assert whole.sort().values.equal(torch.arange(size)), (size, key)
        starts = range(0, size, max(size // 20, 1))
        assert all(ops.permute(at, min(at + 99, size), size, key).equal(whole[at : at + 99]) for at in starts), size


@pytest.mark.parametrize("size", [2**31 + 10, 2**53 + 1, 2**63 - 1])
def test_sizes_beyond_32_bits(size: int) -> None:
    places = [0, 2**31 - 5, size // 2, size - 5]
    items = torch.cat([ops.permute(start, start + 5, size, key=9) for start in places])
    assert items.tolist() == reference.join(reference.permute(start, start + 5, size, 9) for start in places)
    assert items.min() >= 0
    assert int(items.max()) < size
    assert len(set(items.tolist())) == len(items)
    assert int(items.max()) > size // 4


def test_orders_are_those_of_every_release() -> None:
    assert ops.permute(0, 5, 10, key=7).tolist() == [0, 4, 5, 9, 6]
    assert ops.permute(0, 5, 10**6, key=7).tolist() == [621970, 742778, 221930, 26037, 73626]


@pytest.mark.parametrize("size", [3, 30])
def test_each_item_is_at_each_place_equally_often(size: int) -> None:
    check_orders(torch.stack([ops.permute(0, size, size, key) for key in range(6000)]))


def test_all_orders_are_equally_frequent() -> None:
    orders = torch.stack([ops.permute(0, 5, 5, ops.Key(0, epoch, 0).at(0)) for epoch in range(6000)])
    counts = torch.unique(orders, dim=0, return_counts=True)[1]
    assert len(counts) == 120
    check_counts(counts, torch.ones(120))


@pytest.mark.parametrize("place", [0, 5])
def test_each_item_follows_each_other_equally_often(place: int) -> None:
    pairs = torch.stack([ops.permute(place, place + 2, 7, key) for key in range(6000)])
    counts = torch.bincount(pairs[:, 0] * 7 + pairs[:, 1], minlength=49)
    check_counts(counts, 1 - torch.eye(7))


@pytest.mark.parametrize("size", [LARGE, 20_003])
def test_large_orders_spread_the_items_over_the_places(size: int) -> None:
    counts = torch.zeros(BUCKETS, BUCKETS, dtype=torch.float64)
    trials = 40
    places = bucket(torch.arange(size), size)
    for key in range(trials):
        items = bucket(ops.permute(0, size, size, key), size)
        counts += torch.bincount(places * BUCKETS + items, minlength=BUCKETS**2).reshape(BUCKETS, BUCKETS)
    expected = trials * bucket_sizes(size)[:, None] * bucket_sizes(size) / size
    # With the sums of rows and columns given, there are so many directions left, and a little less variance.
    statistic = ((counts - expected) ** 2 / expected).sum() * (size - 1) / size
    check_chi_square(float(statistic), (BUCKETS - 1) ** 2)


@pytest.mark.parametrize(("size", "place"), [(LARGE, 1000), (100_003, 0), (2**40, 0)])
@pytest.mark.parametrize("apart", ["by one", "by a half of the bits"])
def test_large_orders_spread_neighboring_items(size: int, place: int, apart: str) -> None:
    other = place + (1 if apart == "by one" else 1 << ((size - 1).bit_length() + 1) // 2)
    keys = [ops.Key(0, epoch, 0).at(0) for epoch in range(4000)]
    pairs = torch.stack([torch.cat([ops.permute(at, at + 1, size, key) for at in (place, other)]) for key in keys])
    first, second = bucket(pairs, size).T
    sizes = bucket_sizes(size)
    check_counts(torch.bincount(first * BUCKETS + second, minlength=BUCKETS**2), sizes[:, None] * sizes)
    steps = (pairs[:, 1] - pairs[:, 0]) % size
    check_counts(torch.bincount(bucket(steps, size), minlength=BUCKETS), sizes)


def test_keys_give_unrelated_orders() -> None:
    left, right = (bucket(ops.permute(0, LARGE, LARGE, key), LARGE) for key in (1, 2))
    counts = torch.bincount(left * BUCKETS + right, minlength=BUCKETS**2)
    check_counts(counts, bucket_sizes(LARGE)[:, None] * bucket_sizes(LARGE))
