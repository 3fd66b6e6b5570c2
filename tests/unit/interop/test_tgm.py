"""TGM's hooks, compared with slow ones that keep state as TGM's do."""

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.interop.tgm import (
    HistoricalNegativeEdgeSamplerHook,
    NeighborSamplerHook,
    RandomNegativeEdgeSamplerHook,
    RecencyNeighborHook,
    TGBNegativeEdgeSamplerHook,
    read_tgb_negatives,
)
from tests.kinds.digests import digest
from tests.kinds.events import ENDS, ITEMS, NUM_EVENTS, NUM_NODES, TIMES, USERS
from tests.kinds.refusals import check_refused
from tests.kinds.slow_events import BOTH, last

SIZE = 30
EDGE_X = torch.arange(2.0 * NUM_EVENTS).reshape(-1, 2) + 1
EVENTS = SimpleNamespace(edge_src=ENDS[0], edge_dst=ENDS[1], edge_time=torch.from_numpy(TIMES), edge_x=EDGE_X)
SEEDS = ["edge_src", "edge_dst", "neg"], ["edge_time", "edge_time", "neg_time"]
Row = list[tuple[int, int, list[float]]]


def batches() -> list[Any]:
    made = []
    for low in range(0, NUM_EVENTS, SIZE):
        rows = slice(low, low + SIZE)
        batch = SimpleNamespace(
            edge_src=ENDS[0, rows].int(), edge_dst=ENDS[1, rows].int(), edge_time=EVENTS.edge_time[rows]
        )
        made.append(RandomNegativeEdgeSamplerHook(0, NUM_NODES)(None, batch))
    return made


def rows_of(batch: Any, hop: int) -> list[Row]:
    columns = (batch.nbr_nids[hop], batch.nbr_edge_time[hop], batch.nbr_edge_x[hop])
    return [list(zip(*row, strict=True)) for row in zip(*(own.tolist() for own in columns), strict=True)]


def real(row: Row) -> Row:
    return [place for place in row if place[0] >= 0]


def as_row(found: list[tuple[int, int, int]]) -> Row:
    """Replace the ids of edges, which are those of both directions, by the features of their events."""
    return [(node, time, EDGE_X[edge % NUM_EVENTS].tolist()) for node, time, edge in found]


class RingBuffers:
    """The last events of each node, added after each batch: TGM's way."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: dict[int, Row] = {}

    def last(self, node: int, time: int, count: int) -> Row:
        return [place for place in self.known.get(node, []) if place[1] < time][-count:]

    def add(self, low: int) -> None:
        for event in range(low, min(low + SIZE, NUM_EVENTS)):
            for node, other in ((USERS[event], ITEMS[event]), (ITEMS[event], USERS[event])):
                place = (int(other), int(TIMES[event]), EDGE_X[event].tolist())
                self.known[int(node)] = [*self.known.get(int(node), []), place][-self.size :]


def test_the_first_hop_is_tgms_and_its_later_rows_are_ends_of_these() -> None:
    hook, buffers, cut = RecencyNeighborHook(NUM_NODES, [4, 3], *SEEDS, events=EVENTS), RingBuffers(4), 0
    whole = 0
    for number, batch in enumerate(batches()):
        hook(None, batch)
        for node, time, row in zip(
            batch.seed_nids[0].tolist(), batch.seed_times[0].tolist(), rows_of(batch, 0), strict=True
        ):
            known = buffers.last(node, time, 4)
            # Events at the seed's own time, in the batch before, may have displaced earlier ones in TGM's buffer.
            is_whole = len(known) == len(buffers.known.get(node, []))
            assert row[4 - len(known) :] == known
            assert not is_whole or row[: 4 - len(known)] == [(-1, 0, [0.0, 0.0])] * (4 - len(known))
            whole += is_whole
        assert batch.seed_nids[1].equal(batch.nbr_nids[0].flatten())
        assert batch.seed_times[1].equal(batch.nbr_edge_time[0].flatten())
        for node, time, row in zip(
            batch.seed_nids[1].tolist(), batch.seed_times[1].tolist(), rows_of(batch, 1), strict=True
        ):
            theirs = buffers.last(node, time, 3) if node >= 0 else []
            assert real(row) == as_row(last(node, time, 3))
            assert not theirs or real(row)[-len(theirs) :] == theirs
            cut += len(theirs) < len(real(row))
        buffers.add(number * SIZE)
    assert cut > 100
    assert whole > 1900


@pytest.mark.parametrize("hook", [RecencyNeighborHook, NeighborSamplerHook])
def test_attributes_have_tgms_shapes_and_dtypes(hook: Any) -> None:
    first = [NUM_NODES] if hook is RecencyNeighborHook else []
    batch = hook(*first, [4, 3], *SEEDS, False, "a", events=EVENTS)(None, batches()[3])
    assert [own.shape for own in batch.nbr_edge_x_a] == [(90, 4, 2), (360, 3, 2)]
    assert {own.dtype for own in (*batch.seed_nids_a, *batch.nbr_nids_a)} == {torch.int32}
    assert {own.dtype for own in (*batch.seed_times_a, *batch.nbr_edge_time_a)} == {torch.int64}
    assert {key: own.tolist() for key, own in batch.seed_node_nbr_mask_a.items()} == {
        key: list(range(30 * place, 30 * place + 30)) for place, key in enumerate(SEEDS[0])
    }


def test_random_neighbours_are_earlier_and_padded_at_the_end() -> None:
    hook = NeighborSamplerHook([4, 3], *SEEDS, events=EVENTS)
    for number, batch in enumerate(batches()):
        hook(None, batch)
        for hop in (0, 1):
            for node, time, row in zip(
                batch.seed_nids[hop].tolist(), batch.seed_times[hop].tolist(), rows_of(batch, hop), strict=True
            ):
                earlier = last(node, time, 2 * NUM_EVENTS) if node >= 0 else []
                allowed = [row for row in earlier if hop or row[2] % NUM_EVENTS < number * SIZE]
                assert len(real(row)) == min(len(allowed), len(row))
                assert all(place in as_row(allowed) for place in real(row))
                assert row[: len(real(row))] == real(row)


def test_directed_sources_alone_have_neighbours() -> None:
    hook = RecencyNeighborHook(NUM_NODES, [4], *SEEDS, directed=True, events=EVENTS)
    for number, batch in enumerate(batches()):
        hook(None, batch)
        for node, time, row in zip(
            batch.seed_nids[0].tolist(), batch.seed_times[0].tolist(), rows_of(batch, 0), strict=True
        ):
            # In the second half of the edges, the source of an event sees its destination.
            met = [own for own in last(node, time, 2 * NUM_EVENTS) if NUM_EVENTS <= own[2] < NUM_EVENTS + number * SIZE]
            assert real(row) == as_row(met[-4:])


def test_historical_negatives_were_met_in_earlier_batches() -> None:
    found = 0
    for number, batch in enumerate(batches()):
        HistoricalNegativeEdgeSamplerHook(events=EVENTS)(None, batch)
        assert batch.neg.dtype == torch.int32
        assert batch.valid_neg_mask.equal(batch.neg >= 0)
        assert len({*zip(batch.edge_src.tolist(), batch.neg.tolist(), strict=True)}) == len({*batch.edge_src.tolist()})
        for source, neg in zip(batch.edge_src.tolist(), batch.neg.tolist(), strict=True):
            met = {row[0] for own, row in BOTH if own == source and NUM_EVENTS <= row[2] < NUM_EVENTS + number * SIZE}
            assert neg in met if met else neg == -1
            found += neg >= 0
    assert found > NUM_EVENTS / 2


def test_any_order_of_batches_and_a_copy_in_another_process_give_the_same() -> None:
    hooks = (
        RecencyNeighborHook(NUM_NODES, [4, 3], *SEEDS, events=EVENTS),
        NeighborSamplerHook([4, 3], *SEEDS, events=EVENTS, id="random"),
        HistoricalNegativeEdgeSamplerHook("old", events=EVENTS),
    )
    in_order, again = batches(), list(reversed(copy.deepcopy(batches())))
    for batch in in_order:
        for hook in hooks:
            hook(None, batch)
    for batch in again:
        for hook in pickle.loads(pickle.dumps(hooks)):
            hook(None, batch)
    assert [digest(vars(batch)) for batch in in_order] == [digest(vars(batch)) for batch in reversed(again)]


def test_tgbs_lists_are_read_without_running_their_code(tmp_path: Path) -> None:
    lists = {
        (int(user), int(item), int(time)): np.array([(item + step) % NUM_NODES for step in range(1, 4)])
        for user, item, time in zip(USERS, ITEMS, TIMES, strict=True)
    }
    (tmp_path / "lists.pkl").write_bytes(pickle.dumps(lists))
    (tmp_path / "code.pkl").write_bytes(pickle.dumps({(1, 2, 3): Path("a")}))
    (tmp_path / "list.pkl").write_bytes(pickle.dumps([1]))
    hook = TGBNegativeEdgeSamplerHook("tgbl-wiki", "val", lists=read_tgb_negatives(tmp_path / "lists.pkl"))
    for batch in batches():
        hook(None, batch)
        expected = [
            lists[event].tolist()
            for event in zip(
                *(getattr(batch, name).tolist() for name in ("edge_src", "edge_dst", "edge_time")), strict=True
            )
        ]
        assert [own.tolist() for own in batch.neg_batch_list] == expected
        assert batch.neg.tolist() == sorted({node for own in expected for node in own})
        assert (
            int(batch.edge_time[0])
            <= int(batch.neg_time.min())
            <= int(batch.neg_time.max())
            <= int(batch.edge_time[-1])
        )
    check_refused([
        (lambda: read_tgb_negatives(tmp_path / "code.pkl"), ValueError, "Path, which is not part of an array"),
        (lambda: read_tgb_negatives(tmp_path / "list.pkl"), ValueError, "must hold a dict of negatives"),
        (lambda: NeighborSamplerHook([], *SEEDS, events=EVENTS), ValueError, "num_nbrs must hold integers of 1"),
        (lambda: NeighborSamplerHook([1], ["a"], [], events=EVENTS), ValueError, "go together"),
        (lambda: RandomNegativeEdgeSamplerHook(3, 3), ValueError, "low must be below high"),
    ])  # fmt: skip


def test_a_batch_is_found_by_the_times_of_all_of_its_events() -> None:
    numbers = torch.tensor
    ends = {"edge_src": numbers([0, 1, 0, 1]), "edge_dst": numbers([2, 3, 2, 3])}
    events = SimpleNamespace(**ends, edge_time=numbers([5, 5, 5, 6]))
    batch = SimpleNamespace(edge_src=numbers([0, 1]), edge_dst=numbers([2, 3]), edge_time=numbers([5, 6]))
    assert HistoricalNegativeEdgeSamplerHook(events=events)(None, batch).neg.tolist() == [2, 3]
    batch.neg, batch.neg_time = numbers([7]), numbers([6])
    hook = RecencyNeighborHook(10, [2], ["edge_src", "neg"], ["edge_time", "neg_time"], events=events)
    assert hook(None, batch).nbr_nids[0].tolist() == [[-1, -1], [-1, 3], [-1, -1]]


class Planted:
    """Pickles as an array of objects whose addresses are in the file."""

    def __reduce__(self) -> Any:
        return np.ndarray, ((1,), "O", b"A" * 16)


@pytest.mark.parametrize("value", [Planted(), np.array([None]), np.array(["a"])], ids=["planted", "objects", "texts"])
def test_a_file_of_negatives_makes_no_objects(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "negatives.pkl"
    file.write_bytes(pickle.dumps({(0, 1, 2): value}))
    with pytest.raises(ValueError, match=r"negatives\.pkl does not contain TGB's negatives"):
        read_tgb_negatives(file)


@pytest.mark.parametrize("event", [(0, 1, 2**70), (0, 1, float("nan")), (0, 1, "a"), (0, 1, 2.5)], ids=str)
def test_a_file_of_negatives_with_other_events_is_named(tmp_path: Path, event: Any) -> None:
    file = tmp_path / "negatives.pkl"
    file.write_bytes(pickle.dumps({event: np.array([3])}))
    with pytest.raises(ValueError, match=r"negatives\.pkl does not contain TGB's negatives"):
        read_tgb_negatives(file)
