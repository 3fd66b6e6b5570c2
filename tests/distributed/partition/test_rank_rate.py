from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from graphfeed.distributed import ClusterPlan, Peers
from graphfeed.distributed.partition.rank_rate import Cost, RankRate, be_rank, make_pipe, measure_rank
from graphfeed.loader.executors import available_cores

SMALL: dict[str, Any] = {"num_nodes": 300, "num_edges": 1500, "machines": 2, "fanouts": [3, 2], "batch_size": 20}
MADE = ClusterPlan(**SMALL, id_bytes=4, row_bytes=24)


def test_costs_grow_with_what_other_machines_have() -> None:
    rate = RankRate(Cost(1, 2), Cost(2, 5), cores=10)
    assert rate.cost(0) == Cost(1, 2)
    assert rate.cost(0.5) == Cost(2, 5)
    assert rate.cost(0.75) == Cost(2.5, 6.5)
    assert RankRate(Cost(2, 5), Cost(1, 2), cores=10).cost(1) == Cost(2, 5)
    assert rate.scaled(2).cost(0.75) == Cost(5, 13)


def test_ranks_add_up_until_all_cores_are_busy() -> None:
    rate = RankRate(Cost(0.1, 0.2), Cost(0.2, 0.5), cores=10)
    assert [rate.batches_per_second(0, ranks) for ranks in (1, 2, 5, 9)] == [10, 20, 50, 50]
    assert (rate.most_ranks(0), rate.most_ranks(0.5)) == (5, 4)
    assert RankRate(Cost(1, 4), Cost(1, 4), cores=1).most_ranks(0) == 1


def test_the_graph_that_is_made_has_the_shape_that_was_asked_for() -> None:
    batch = next(iter(make_pipe(MADE, 0, 1, Peers())))
    assert [hop.sampled_csc.indices.dtype for hop in batch.sampled_subgraphs] == [torch.int32] * 2
    assert batch.sampled_subgraphs[-1].sampled_csc.indptr.diff().tolist() == [2] * 20
    assert batch.node_features["row"].shape == (len(batch.input_nodes), 24)
    assert next(iter(make_pipe(ClusterPlan(**SMALL), 0, 1, Peers()))).node_features is None


def test_a_rank_by_itself_is_measured(tmp_path: Path) -> None:
    cost = be_rank(0, 1, str(tmp_path), MADE, 0.01)
    assert cost.seconds > 0
    assert cost.cpu_seconds > 0
    assert not distributed.is_initialized()


@pytest.mark.slow
def test_two_ranks_exchange_what_is_measured() -> None:
    rate = measure_rank(MADE, 0.05)
    assert rate.cores == available_cores()
    assert min(*rate.local, *rate.exchanged) > 0
