"""Mini-batches of items, and the nodes of their seeds."""

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.distributed import PartBook
from graphfeed.ops import Key
from tests.kinds.digests import assert_same


def sampler(count: int = 10, batch_size: int = 3, **options: Any) -> Any:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=batch_size, **options)


def typed_sampler(**options: Any) -> Any:
    users = gf.ItemSet((torch.arange(4), torch.arange(4) * 10), names=("seeds", "labels"))
    items = gf.ItemSet((torch.arange(3), torch.arange(3) * 100), names=("seeds", "labels"))
    return gf.ItemSampler(gf.HeteroItemSet({"user": users, "item": items}), batch_size=3, **options)


def seeds_in(pipe: Any) -> list[list[int]]:
    return [batch.seeds.tolist() for batch in pipe]


def flat(pipe: Any) -> list[int]:
    return [seed for seeds in seeds_in(pipe) for seed in seeds]


def test_items_come_in_order() -> None:
    assert seeds_in(sampler()) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def test_the_last_mini_batch_may_be_left_out() -> None:
    assert seeds_in(sampler(drop_last=True)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert seeds_in(sampler(9, drop_last=True)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert seeds_in(sampler(2, drop_last=True)) == []


@given(st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_the_length_is_the_number_of_mini_batches(count: int, batch_size: int, drop_last: bool) -> None:
    pipe = sampler(count, batch_size, drop_last=drop_last)
    assert len(pipe) == len(list(pipe)) == (count // batch_size if drop_last else -(-count // batch_size))
    for index in (-1, len(pipe)):
        with pytest.raises(IndexError, match=f"index must be in 0 .. {len(pipe) - 1}, but is {index}"):
            pipe.minibatch(index)


@given(st.integers(1, 200), st.integers(1, 7), st.booleans(), st.booleans(), st.integers(0, 40), st.integers(1, 2))
def test_mini_batches_taken_together_are_those_of_their_indexes(
    count: int, batch_size: int, shuffle: bool, drop_last: bool, start: int, group_size: int
) -> None:
    members = (count * group_size, torch.arange(count * group_size).bfloat16(), range(5, 5 + count * group_size))
    items = gf.ItemSet(members, names=("seeds", "labels", "timestamp"), group_size=group_size)
    for item_set in (items, gf.HeteroItemSet({"a": items})):
        pipe: Any = gf.ItemSampler(item_set, batch_size, shuffle=shuffle, drop_last=drop_last, seed=3, start=start)
        assert_same(list(pipe), [pipe.minibatch(index) for index in range(start, len(pipe))])


def test_a_mini_batch_does_not_keep_the_items_of_others() -> None:
    seeds = next(iter(sampler(100, 2))).seeds
    assert seeds.untyped_storage().nbytes() == seeds.nbytes


def test_a_class_may_make_its_own_mini_batches() -> None:
    class Reversed(gf.ItemSampler):
        def positions_of(self, index: int) -> torch.Tensor:
            return super().positions_of(index).flip(0)

    assert seeds_in(Reversed(gf.ItemSet(5, names="seeds"), 2)) == [[1, 0], [3, 2], [4]]


def test_shuffled_items_come_once_each() -> None:
    for count in (1, 10, 4096, 4097, 10_000):
        items = flat(sampler(count, 100, shuffle=True))
        assert sorted(items) == list(range(count))
        assert count == 1 or items != list(range(count))


def test_the_order_depends_on_seed_and_epoch() -> None:
    pipe = sampler(1000, 10, shuffle=True)
    orders = {tuple(flat(pipe.keyed(seed, epoch, 0))) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert flat(pipe.keyed(1, 2, 0)) == flat(pipe.keyed(1, 2, 0))
    assert flat(sampler(1000, 10, shuffle=True, seed=3)) == flat(pipe.keyed(3, 0, 0))


def test_each_place_gets_each_item_about_as_often() -> None:
    first = Counter(seeds_in(sampler(5, 1, shuffle=True, seed=seed))[0][0] for seed in range(1000))
    assert all(150 < first[item] < 250 for item in range(5))


def test_typed_items_become_dicts() -> None:
    first, second, third = typed_sampler()
    assert_same(first.seeds, {"user": torch.arange(3)})
    assert_same(second.seeds, {"user": torch.tensor([3]), "item": torch.arange(2)})
    assert_same(second.labels, {"user": torch.tensor([30]), "item": torch.tensor([0, 100])})
    assert_same(third.labels, {"item": torch.tensor([200])})


def test_typed_items_are_shuffled_together() -> None:
    batches = list(typed_sampler(shuffle=True, seed=1))
    assert any(set(batch.seeds) == {"user", "item"} for batch in batches)
    found = [(kind, int(seed)) for batch in batches for kind, seeds in batch.seeds.items() for seed in seeds]
    assert sorted(found) == [("item", 0), ("item", 1), ("item", 2), *(("user", place) for place in range(4))]
    for batch in batches:
        for kind, seeds in batch.seeds.items():
            assert_same(batch.labels[kind], seeds * (10 if kind == "user" else 100))


def test_rows_can_be_made_into_anything() -> None:
    items = gf.ItemSet((torch.arange(4), torch.arange(4) * 2), names=("a", "b"))
    pipe: Any = gf.ItemSampler(items, 2, lambda rows, names: (rows[0].tolist(), rows[1].tolist(), names))
    assert list(pipe) == [([0, 1], [0, 2], ("a", "b")), ([2, 3], [4, 6], ("a", "b"))]


IDS, LABELS = torch.arange(3), torch.ones(3)


def test_an_item_set_may_find_its_items_in_a_way_of_its_own() -> None:
    class Doubled(gf.ItemSet):
        def __getitem__(self, index: Any) -> Any:
            return 2 * super().__getitem__(index)

    (minibatch,) = gf.ItemSampler(Doubled(torch.arange(3), names="seeds"), batch_size=3)
    assert minibatch.seeds.tolist() == [0, 2, 4]


def test_typed_rows_become_a_dict_a_field() -> None:
    rows = {"user": (IDS, LABELS), "item": (IDS + 1, LABELS + 1)}
    expected = gf.MiniBatch(seeds={"user": IDS, "item": IDS + 1}, labels={"user": LABELS, "item": LABELS + 1})
    assert_same(gf.minibatcher_default(rows, ("seeds", "labels")), expected)
    one = {"user": IDS, "item": IDS}
    assert_same(gf.minibatcher_default(one, ("seeds",)), gf.MiniBatch(seeds=one))


def test_another_name_is_set_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="item name 'weather' is not a MiniBatch field; it is set as an attribute"):
        batch = gf.minibatcher_default((IDS, LABELS), ("seeds", "weather"))
    assert_same(batch.weather, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.GBWarning)  # as GraphBolt's programs do
        gf.minibatcher_default((IDS, IDS), ("seeds", "weather"))


def test_rows_without_names_are_passed_on_with_a_warning() -> None:
    for rows in (IDS, (IDS, IDS), {"a": IDS}):
        with pytest.warns(UserWarning, match="no names, so its rows are passed on unchanged; name them"):
            assert gf.minibatcher_default(rows, None) is rows


def make_batches(count: int = 5) -> list[gf.MiniBatch]:
    return [gf.MiniBatch(seeds=torch.tensor([place, place + 1])) for place in range(count)]


def test_each_mini_batch_gets_a_key_by_its_place() -> None:
    keys = [batch.key for batch in gf.IterableSource(make_batches(), seed=7, epoch=3)]
    assert keys == [Key(7, 3, index) for index in range(5)]
    assert [batch.key for batch in gf.IterableSource(make_batches())] == [Key(0, 0, index) for index in range(5)]


def test_keys_that_were_there_are_replaced() -> None:
    batches = [gf.MiniBatch(seeds=torch.tensor([0]), key=Key(9, 9, 9))]
    (result,) = gf.IterableSource(batches)
    assert result.key == Key(0, 0, 0)
    assert batches[0].key == Key(9, 9, 9)


def grouped(count: int, group_size: int) -> gf.ItemSet:
    """Return items that begin with the number of their group."""
    rows = torch.arange(count * group_size)
    return gf.ItemSet((rows, rows // group_size), names=("seeds", "labels"), group_size=group_size)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
def test_a_minibatch_has_whole_groups_in_their_order(batch_size: int, shuffle: bool) -> None:
    sizes = {"a": 3, "b": 1, "c": 4}
    items = gf.HeteroItemSet({kind: grouped(5, size) for kind, size in sizes.items()})
    seen: dict[str, list[int]] = {kind: [] for kind in sizes}
    pipe: Any = gf.ItemSampler(items, batch_size, shuffle=shuffle, seed=1)
    minibatches = list(pipe)
    assert len(minibatches) == len(pipe) == -(-15 // max(batch_size // 4, 1))
    for minibatch in minibatches:
        assert sum(map(len, minibatch.seeds.values())) <= max(batch_size, 4)
        for kind, seeds in minibatch.seeds.items():
            rows = seeds.reshape(-1, sizes[kind])
            assert torch.equal(rows, rows[:, :1] + torch.arange(sizes[kind]))
            assert (rows[:, 0] % sizes[kind] == 0).all()
            assert torch.equal(minibatch.labels[kind], seeds // sizes[kind])
            seen[kind] += seeds.tolist()
    assert {kind: sorted(rows) for kind, rows in seen.items()} == {k: list(range(5 * n)) for k, n in sizes.items()}
    if shuffle:
        assert seen["c"] != list(range(20))


def test_groups_without_types_are_not_cut_either() -> None:
    pipe: Any = gf.ItemSampler(grouped(5, 3), batch_size=7, drop_last=True)
    assert [minibatch.seeds.tolist() for minibatch in pipe] == [list(range(6)), list(range(6, 12))]


def test_groups_that_can_not_be_kept_are_refused() -> None:
    with pytest.raises(ValueError, match="group_size is 3, but there are 7 items, which is not a multiple of it"):
        gf.ItemSet(7, names="seeds", group_size=3)
    with pytest.raises(ValueError, match="group_size must be 1 or more, but is 0"):
        gf.ItemSet(7, names="seeds", group_size=0)
    book = PartBook.from_bounds([0, 3, 6])
    with pytest.raises(ValueError, match="owners would divide groups of 3 items"):
        gf.DistributedItemSampler(gf.ItemSet(6, names="seeds", group_size=3), 2, rank=0, world_size=2, owners=book)
