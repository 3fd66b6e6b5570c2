"""Negatives for events."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes import FixedNegatives
from tests.kinds.chance import check_counts
from tests.kinds.events import (
    FIRST_ITEM,
    ITEMS,
    NUM_EVENTS,
    NUM_NODES,
    TIMES,
    USERS,
    check_same_everywhere,
    event_graph,
    event_items,
)
from tests.kinds.refusals import check_refused
from tests.kinds.slow_events import BOTH, seen

ANY: Any = gf
GRAPH = event_graph()
AT: dict[str, Any] = {"edge_timestamp_attr_name": "time"}
LISTS = FixedNegatives(
    {
        (int(user), int(item), int(time)): [(int(item) + step) % NUM_NODES for step in range(1, 2 + int(item) % 3)]
        for user, item, time in zip(USERS, ITEMS, TIMES, strict=True)
    }
)


def negatives(kind: Any = "random", ratio: int = 3, items: Any = None, **options: Any) -> Any:
    pipe = gf.ItemSampler(event_items() if items is None else items, batch_size=64, shuffle=True)
    return pipe.sample_temporal_negative(GRAPH, kind, ratio, **options)


def drawn(pipe: Any) -> list[tuple[int, int, int, list[int]]]:
    """Return each event with its negatives: source, destination, time and negative destinations."""
    found = []
    for batch in pipe:
        count = len(batch.timestamp)
        assert batch.labels.tolist() == [1.0] * count + [0.0] * (len(batch.seeds) - count)
        assert batch.seeds[:, 0].equal(batch.seeds[batch.indexes, 0])
        for row in range(count):
            ends = batch.seeds[count:, 1][batch.indexes[count:] == row].tolist()
            found.append((*batch.seeds[row].tolist(), int(batch.timestamp[row]), ends))
    return found


def check_even(counts: Counter[int], nodes: Iterable[int]) -> None:
    found = torch.tensor([counts[node] for node in nodes])
    check_counts(found, torch.ones(len(found)))


def met_at(node: int, time: int) -> set[int]:
    return {other for own, (other, when, _) in BOTH if own == node and when == time}


def test_random_destinations_are_in_their_range() -> None:
    events = drawn(negatives(destinations=(FIRST_ITEM, NUM_NODES)))
    counts = Counter(end for *_, ends in events for end in ends)
    check_even(counts, range(FIRST_ITEM, NUM_NODES))
    assert len(events) == NUM_EVENTS
    assert set(counts) == set(range(FIRST_ITEM, NUM_NODES))


@pytest.mark.parametrize("ratio", [1, 9])
def test_strict_ones_are_distinct_and_not_met_at_that_time(ratio: int) -> None:
    counts: Counter[int] = Counter()
    for source, end, time, ends in drawn(negatives(ratio=ratio, strict=True, destinations=(25, 36), **AT)):
        assert len(set(ends)) == len(ends) == ratio
        assert not {end, *met_at(source, time)} & set(ends)
        counts.update(ends)
    assert ratio > 1 or set(counts) == set(range(25, 36))


def test_those_of_a_type_have_the_type_of_the_destination() -> None:
    counts: Counter[int] = Counter()
    for _, end, _, ends in drawn(negatives("of_type", type_name="kind")):
        assert {node % 3 for node in ends} == {end % 3}
        counts.update(node for node in ends if node % 3 == 1)
    check_even(counts, range(1, NUM_NODES, 3))


@pytest.mark.parametrize("strict", [False, True])
def test_seen_ones_were_met_before_and_random_ones_follow(strict: bool) -> None:
    random = 0
    for source, end, time, ends in drawn(negatives("seen", strict=strict, destinations=(25, NUM_NODES), **AT)):
        met = {other for other, *_ in seen(source, time)}
        now = {end, *met_at(source, time)}
        allowed = met - now if strict else met
        before, after = ends[: len(allowed)], ends[len(allowed) :]
        assert set(before) <= allowed
        assert len(set(before)) == len(before)
        assert set(after) <= set(range(25, NUM_NODES))
        assert not strict or (len(set(ends)) == len(ends) and not now & set(ends))
        random += len(after)
    assert 0 < random < NUM_EVENTS


def test_each_of_those_seen_is_equally_likely() -> None:
    user, item, time = (int(own[-1]) for own in (USERS, ITEMS, TIMES))
    met = sorted({other for other, *_ in seen(user, time)})
    items = gf.ItemSet((torch.tensor([[user, item]] * 4000), torch.full((4000,), time)), names=("seeds", "timestamp"))
    counts = Counter(end for *_, ends in drawn(negatives("seen", 1, items, **AT)) for end in ends)
    check_even(counts, met)


def test_columns_have_the_same_negatives() -> None:
    options: Any = {"strict": True, **AT}
    for rows, columns in zip(negatives("seen", **options), negatives("seen", as_columns=True, **options), strict=True):
        count = len(columns.seeds)
        assert columns.seeds[:, :2].equal(rows.seeds[:count])
        assert columns.seeds[:, 2:].flatten().equal(rows.seeds[count:, 1])
    hops = negatives("seen", as_columns=True, **options).temporal_sample_neighbor(GRAPH, [3], strategy="latest", **AT)
    for batch in hops.to_matrix():
        assert batch.compacted_seeds.shape == batch.seeds.shape == (len(batch.timestamp), 5)
        assert batch.matrices[0].seed_times.equal(batch.timestamp.repeat_interleave(5))


def test_lists_are_found_by_event(tmp_path: Path) -> None:
    LISTS.save(tmp_path / "negatives.npz")
    for source, end, time, ends in drawn(negatives("listed", lists=FixedNegatives.load(tmp_path / "negatives.npz"))):
        assert ends == [(end + step) % NUM_NODES for step in range(1, 2 + end % 3)]
        assert ends == LISTS.find([source], [end], [time])[0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "of_type", "seen", "listed"])
def test_they_are_the_same_everywhere(kind: Any) -> None:
    more: Any = {"of_type": {"type_name": "kind"}, "listed": {"lists": LISTS}}.get(kind, {})
    check_same_everywhere(negatives(kind, strict=True, **AT, **more))


@pytest.mark.parametrize("kind", ["random", "seen"])
@pytest.mark.parametrize("hop_time", ["seed", "edge"])
def test_nothing_at_or_after_a_seeds_time_is_seen_behind_a_negative(kind: Any, hop_time: Any) -> None:
    pipe = negatives(kind, strict=True, **AT)
    for batch in pipe.temporal_sample_neighbor(GRAPH, [4, 4, 4], hop_time=hop_time, **AT).to_matrix():
        times = batch.timestamp[batch.indexes].repeat_interleave(2)
        for matrix in batch.matrices:
            limits = matrix.seed_times if hop_time == "edge" else times
            assert (matrix.times < limits[:, None])[matrix.mask].all()
            times = times.repeat_interleave(matrix.ids.shape[1])


def test_what_cannot_be_drawn_is_refused() -> None:
    short = FixedNegatives({(0, 0, 0): [1]})
    pair = gf.ItemSet(([[0, 1], [2, 3]], [4, 5]), names=("seeds", "timestamp"))
    uneven: Any = negatives("listed", 1, pair, lists=FixedNegatives({(0, 1, 4): [5], (2, 3, 5): [6, 7, 8]}))
    few: Any = negatives(ratio=15, strict=True, destinations=(25, NUM_NODES), **AT)
    untimed = gf.ItemSet(event_items().members[0], names="seeds")
    typed = gf.from_coo({"a:to:b": ([0], [0])}, {"a": 1, "b": 1})
    check_refused([
        (lambda: negatives("new"), ValueError, "kind must be one of .* but is 'new'"),
        (lambda: negatives("listed"), ValueError, "kind must be 'listed' with lists, and 'of_type' with type_name"),
        (lambda: negatives(lists=LISTS), ValueError, "kind must be 'listed' with lists"),
        (lambda: negatives("seen"), ValueError, "need the times of edges; give edge_timestamp_attr_name"),
        (lambda: negatives(destinations=(5, 99)), ValueError, r"must be a range of 40 nodes, but is \(5, 99\)"),
        (lambda: negatives(ratio=0), ValueError, "ratio must be 1 or more, but is 0"),
        (lambda: next(iter(few)), ValueError, "has fewer than 15 possible destinations; allow more"),
        (lambda: drawn(negatives("listed", lists=short)), ValueError, "lists has no negatives for the event"),
        (lambda: drawn(negatives(items=untimed)), ValueError, "events need one time each"),
        (lambda: next(iter(uneven.changed(as_columns=True))), ValueError, "equally many negatives for each event"),
        (lambda: drawn(gf.ItemSampler(event_items(), 9).sample_temporal_negative(typed)), ValueError, "have no types"),
        (lambda: FixedNegatives({}), ValueError, "lists must have 1 event or more"),
    ])  # fmt: skip


def test_seeds_outside_of_the_graph_are_refused() -> None:
    graph = gf.from_coo(([1, 2, 3], [0, 0, 0]), num_nodes=4, edge_attributes={"time": torch.tensor([10, 20, 30])})
    items = gf.ItemSet((torch.tensor([[0, 5], [0, 2]]), [5, 5]), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, 2).sample_temporal_negative(graph, strict=True, edge_timestamp_attr_name="time")
    with pytest.raises(ValueError, match=r"seeds must be in 0 \.\. 3"):
        next(iter(pipe))
