"""What ranks that make a joint mini-batch tell each other, and rows that come from their owners."""

import threading
import time

import pytest
import torch

from graphfeed.distributed import Peers
from graphfeed.distributed.cooperative.row_exchange import plan_exchange
from graphfeed.distributed.cooperative.step_exchange import StepExchange, Tag
from tests.distributed.joint import in_threads


def part(number: int) -> dict[str, torch.Tensor]:
    return {"number": torch.tensor([number])}


def refused(box: StepExchange, index: int = 0) -> str:
    """Return the error of a trade with a rank that has left."""
    with pytest.raises(RuntimeError) as error:
        box.trade((1, index, 0), [part(0)] * 2)
    return str(error.value)


def test_steps_may_be_traded_in_any_order() -> None:
    def work(rank: int, peers: Peers) -> list[list[int]]:
        box, found = StepExchange(peers, "test"), {}

        def trade(tag: Tag) -> None:
            arrived = box.trade(tag, [part(100 * tag[1] + 10 * rank + other) for other in range(3)])
            found[tag] = [int(tensors["number"]) for tensors in arrived]

        tags = [(1, index, 0) for index in range(3)]
        threads = [threading.Thread(target=trade, args=(tag,)) for tag in (tags if rank else tags[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return [found[tag] for tag in tags]

    for rank, found in enumerate(in_threads(3, work)):
        assert found == [[100 * index + 10 * other + rank for other in range(3)] for index in range(3)]


def test_who_waits_for_a_rank_that_says_it_left_is_told_and_nothing_is_kept() -> None:
    def work(rank: int, peers: Peers) -> list[str]:
        box, ends = StepExchange(peers, "test"), list[str]()
        if rank == 1:
            box.leave(1)
        waiting = threading.Thread(target=lambda: ends.append(refused(box)))
        waiting.start()
        waiting.join(20)
        box.leave(1)
        box.trade((2, 0, 0), [part(rank)] * 2)
        return [*ends, str(box._given)]

    found = in_threads(2, work)
    assert all("ranks [1] have left this epoch" in error for error, _ in found)
    assert [kept for _, kept in found] == ["{}"] * 2


def test_a_thread_that_waits_ends_once_its_own_rank_leaves() -> None:
    ready = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> str:
        box, ends = StepExchange(peers, "test"), list[str]()
        waiting = threading.Thread(target=lambda: ends.append(refused(box)))
        if rank == 0:
            waiting.start()
            while (1, 0, 0) not in box._given:
                time.sleep(0.01)
            box.leave(1)
            waiting.join(20)
        ready.wait(30)
        return "".join(ends)

    assert "ranks [0] have left this epoch" in in_threads(2, work)[0]


def test_who_waits_for_a_rank_that_ended_is_told() -> None:
    def work(rank: int, peers: Peers) -> str:
        box = StepExchange(peers, "test")
        return refused(box, 4) if rank == 0 else ""  # and the peers of rank 1 are closed

    assert "ranks [1] have ended before joint mini-batch 4; all ranks must" in in_threads(2, work)[0]


def test_a_rank_that_does_not_come_is_named() -> None:
    ready = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> str:
        box = StepExchange(peers, "test")
        peers.ranks_here()  # until both have begun
        peers.start_timeout = peers.timeout = 0.2
        if rank == 1:
            ready.wait(30)
            return ""
        with pytest.raises(TimeoutError) as error:
            box.trade((1, 7, 0), [part(0)] * 2)
        ready.wait(30)
        return str(error.value)

    assert "ranks [1] did not come to joint mini-batch 7 for 0.4 s" in in_threads(2, work)[0]


def test_ranks_that_draw_otherwise_are_both_told_at_the_step() -> None:
    def work(rank: int, peers: Peers) -> str:
        with pytest.raises(ValueError, match="joint mini-batch 5") as error:
            StepExchange(peers, "test").trade((1, 5, 0), [part(rank)] * 2, f"seed {rank} in epoch 0")
        return str(error.value)

    for rank, text in enumerate(in_threads(2, work)):
        assert f"5 with seed {rank} in epoch 0, but rank {1 - rank} with seed {1 - rank} in epoch 0; give" in text


def test_rows_come_from_their_owners_in_the_order_of_those_who_need_them() -> None:
    needed = [torch.tensor([5, 0, 5, 8]), torch.tensor([], dtype=torch.int64), torch.tensor([8, 3])]

    def work(rank: int, peers: Peers) -> list[list[int]]:
        box = StepExchange(peers, "test")
        exchange = plan_exchange(box, (1, 0, 0), needed[rank], 9, lambda _, ids: ids % 2)
        exchange.count_rows()
        assert isinstance(exchange.owned, torch.Tensor)
        assert (peers.traffic.rows_needed, peers.traffic.rows_read) == [(3, 2), (3, 2), (0, 0)][rank]
        (rows,) = exchange.trade([(None, exchange.owned * 10)], 1)
        return [exchange.owned.tolist(), rows.tolist()]

    found = in_threads(3, work)
    assert [owned for owned, _ in found] == [[0, 8], [5, 3], []]
    assert [rows for _, rows in found] == [(ids * 10).tolist() for ids in needed]
