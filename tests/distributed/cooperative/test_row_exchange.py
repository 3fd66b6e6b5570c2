from typing import Any

import pytest
import torch

from graphfeed.distributed import Peers
from graphfeed.distributed.cooperative.row_exchange import check_needed, plan_exchange
from graphfeed.distributed.cooperative.step_exchange import StepExchange
from tests.distributed.joint import in_threads


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


@pytest.mark.parametrize(
    ("needed", "num_nodes", "error", "message"),
    [
        (torch.tensor([3, 9]), 9, ValueError, r"seeds must lie in 0 \.\. 8, but holds 9"),
        ({"user": torch.tensor([-1])}, {"user": 9}, ValueError, "seeds of type 'user' must lie in 0"),
        ({"user": torch.tensor([1])}, 9, TypeError, "has one type, but are a dict; give an ItemSet"),
        (torch.tensor([1]), {"user": 9}, TypeError, "types .'user'., but are a Tensor; give a HeteroItemSet"),
        ({"shop": torch.tensor([1])}, {"user": 9}, KeyError, "node type 'shop', but the graph has .'user'."),
        (torch.tensor([0.5]), 9, TypeError, "seeds"),
    ],
)
def test_wrong_seeds_fail_on_the_rank_that_has_them(needed: Any, num_nodes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        check_needed(needed, num_nodes)
