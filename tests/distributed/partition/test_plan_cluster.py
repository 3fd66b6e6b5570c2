"""The plan of a cluster, and the rate of a rank that it measures."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from graphfeed.__main__ import main
from graphfeed.distributed import ClusterPlan, Peers
from graphfeed.distributed.partition import plan_cluster
from graphfeed.distributed.partition.plan_cluster import MESSAGE_BYTES
from graphfeed.distributed.partition.rank_rate import Cost, RankRate, be_rank, make_pipe, measure_rank
from graphfeed.loader.executors import available_cores
from tests.distributed.rank_processes import run_ranks
from tests.refusals import check_refused

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


PLAN: dict[str, Any] = {"num_nodes": 20_000, "num_edges": 200_000, "machines": 3, "fanouts": [10, 10]}


@pytest.mark.slow
@pytest.mark.parametrize("start_bytes", [4, pytest.param(8, marks=pytest.mark.thorough)])
def test_what_is_planned_is_what_ranks_hold_and_send(tmp_path: Path, start_bytes: int) -> None:
    """Column starts of four bytes are there once more in eight."""
    given: dict[str, Any] = {"share_memory": False, "start_bytes": start_bytes}
    ranks = run_ranks("tests.distributed.traffic:count_traffic", 3, tmp_path, **given)
    plan = ClusterPlan(**PLAN, batch_size=512, row_bytes=128, start_bytes=start_bytes)
    batches = sum(rank["batches"] for rank in ranks)
    assert [rank["exchanges"] for rank in ranks] == [len(plan.traffic) * rank["batches"] for rank in ranks]
    for name, planned in {
        "sent": sum(plan.traffic.values()) * batches,
        "edges": sum(edges for _, edges in plan.hops) * batches,
        "graph_bytes": plan.memory["graph"] * 3,
        "feature_bytes": plan.memory["features"] * 3,
    }.items():
        assert sum(rank[name] for rank in ranks) == pytest.approx(planned, rel=0.02), name


@pytest.mark.slow
def test_processes_of_a_machine_take_the_memory_that_is_planned(tmp_path: Path) -> None:
    given: dict[str, Any] = {"share_memory": True, "start_bytes": 4}
    plan = ClusterPlan(**{**PLAN, "machines": 1}, row_bytes=128, ranks_per_machine=3, start_bytes=4)
    for rank in run_ranks("tests.distributed.traffic:count_traffic", 3, tmp_path, **given):
        assert rank["merged_bytes"] + 2 * 8 * 20_001 == pytest.approx(plan.memory["shared columns"], rel=0.02)
        assert rank["graph_bytes"] == pytest.approx(plan.memory["graph"] / 3, rel=0.02)


def test_processes_of_other_machines_are_asked_each() -> None:
    alone, four = (ClusterPlan(**PLAN, ranks_per_machine=count) for count in (1, 4))
    assert four.traffic["hop 1"] - alone.traffic["hop 1"] == pytest.approx(6 * MESSAGE_BYTES)


def test_hops_grow_by_fan_outs_and_degrees_up_to_the_whole_graph() -> None:
    plan = ClusterPlan(**{**PLAN, "fanouts": [-1, -1, 4]}, batch_size=10)
    assert plan.hops[0] == (10, 40)
    assert plan.hops[1][1] == pytest.approx(10 * plan.hops[1][0])
    assert ClusterPlan(**{**PLAN, "fanouts": [-1] * 9}).input_nodes == pytest.approx(20_000)
    assert ClusterPlan(**PLAN, batch_size=30_000).hops[0][0] == 20_000


def test_types_ids_and_column_starts_change_the_memory_of_a_part() -> None:
    plain = ClusterPlan(**PLAN).memory["graph"]
    assert ClusterPlan(**PLAN, id_bytes=4).memory["graph"] == pytest.approx(plain - 4 * 200_000 / 3)
    assert ClusterPlan(**PLAN, type_bytes=1).memory["graph"] == pytest.approx(plain + 200_000 / 3)
    assert ClusterPlan(**PLAN, edge_id_bytes=0).memory["graph"] == pytest.approx(plain - 8 * 200_000 / 3 + 8 * 20_001)
    assert ClusterPlan(**PLAN, start_bytes=4).memory["graph"] == pytest.approx(plain + 4 * 20_001)


def test_ids_below_two_to_the_31_take_four_bytes_on_the_network_and_others_eight() -> None:
    changes: list[tuple[dict[str, int], int, int]] = [
        ({}, 8, 8),
        ({"num_edges": (1 << 31) + 1, "type_bytes": 1}, 8, 13),
        ({"num_nodes": (1 << 31) + 1}, 12, 12),
    ]
    for change, column, edge in changes:
        plan = ClusterPlan(**{**PLAN, **change, "fanouts": [10]})
        columns, edges = plan.hops[0]
        assert plan.traffic["hop 1"] - 2 * MESSAGE_BYTES == pytest.approx((columns * column + edges * edge) * 2 / 3)


def test_one_machine_sends_nothing() -> None:
    plan = ClusterPlan(**{**PLAN, "machines": 1}, row_bytes=16)
    assert (plan.traffic, plan.batches_per_second) == ({}, inf)
    assert plan.memory["features"] == 20_000 * 16


def test_the_rate_is_that_of_the_network() -> None:
    plan = ClusterPlan(**PLAN, row_bytes=32, gbit_per_second=8)
    assert plan.batches_per_second * sum(plan.traffic.values()) == pytest.approx(1e9)
    assert list(ClusterPlan(**PLAN).traffic) == ["hop 1", "hop 2"]


RATE = RankRate(Cost(0.01, 0.02), Cost(0.03, 0.05), cores=16)


def test_ranks_that_were_measured_limit_the_rate_if_the_network_does_not() -> None:
    slow, fast = (ClusterPlan(**PLAN, row_bytes=32, gbit_per_second=gbit, rank_rate=RATE) for gbit in (0.1, 100))
    assert slow.batches_per_second == slow.network_rate < fast.network_rate
    assert fast.batches_per_second == pytest.approx(1 / (0.01 + 0.02 * 2 * 2 / 3))
    assert "mini-batches/s by its network, all" in str(slow)
    assert "mini-batches/s by its ranks, all" in str(fast)
    assert "a rank makes at most 27.3 mini-batches/s, and keeps 1.6 of this machine's 16 cores busy" in str(fast)
    assert "up to 10 ranks per machine make more, at most 266.7 mini-batches/s" in str(fast)
    one = ClusterPlan(**PLAN, rank_rate=replace(RATE, cores=1))
    assert "more than one rank per machine makes no more" in str(one)


def test_an_epoch_takes_as_long_as_its_mini_batches() -> None:
    plan = ClusterPlan(**PLAN, rank_rate=RATE, num_items=1_000_000, gbit_per_second=1000)
    seconds = 1_000_000 / 1024 / 3 / plan.batches_per_second
    assert str(plan).endswith(f"an epoch of 1,000,000 items takes at least {seconds:.1f} s")


def test_the_rate_is_that_of_a_smaller_graph_with_as_many_edges_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ClusterPlan] = []

    def measure(plan: ClusterPlan, seconds: float) -> RankRate:
        asked.append(plan)
        return RATE

    monkeypatch.setattr(plan_cluster, "measure_rank", measure)
    large: dict[str, Any] = {"num_nodes": 10**8, "num_edges": 16 * 10**8, "id_bytes": 4, "row_bytes": 1024}
    plan = ClusterPlan(**{**PLAN, **large}).measured()
    small = ClusterPlan(**{**PLAN, **large, "num_nodes": 1 << 18, "num_edges": 1 << 22})
    assert asked == [small]
    assert plan.rank_rate is not None
    assert plan.rank_rate.local.seconds / 0.01 == pytest.approx(plan.nodes_and_edges / small.nodes_and_edges)
    assert plan.rank_rate.local.seconds > 0.01
    assert ClusterPlan(**{**PLAN, "num_edges": 0}).measured().rank_rate is not None
    assert asked[1] == ClusterPlan(**{**PLAN, "num_edges": 20_000})


def test_what_is_out_of_range_is_refused() -> None:
    def plan(**change: Any) -> ClusterPlan:
        return ClusterPlan(**{**PLAN, **change})

    check_refused(
        [
            (lambda: plan(num_nodes=0), ValueError, "num_nodes must be 1 or more, but is 0"),
            (lambda: plan(machines=0), ValueError, "machines must be 1 or more, but is 0"),
            (lambda: plan(fanouts=[]), ValueError, "fanouts must have one number per hop, but is empty"),
            (lambda: plan(fanouts=[5, -2]), ValueError, "a fan-out must be -1 or more, but is -2"),
            (lambda: plan(row_bytes=-1), ValueError, "row_bytes must be 0 or more, but is -1"),
            (lambda: plan(gbit_per_second=0), ValueError, "gbit_per_second must be a positive number, but is 0"),
        ]
    )


def test_the_command_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    given = "--nodes 20000 --edges 200000 --machines 3 --fanouts 10,5 --batch-size 512 --row-bytes 64 --id-bytes 4"
    more = "--start-bytes 4 --type-bytes 1 --gbit 25 --ranks-per-machine 2"
    assert main(["plan-cluster", *given.split(), *more.split()]) == 0
    plan = ClusterPlan(20_000, 200_000, 3, [10, 5], 512, 64, 4, 4, 1, 2, 25.0)
    text = capsys.readouterr().out
    assert text == f"{plan}\n"
    assert [line.split("  ")[1] for line in text.splitlines() if line.startswith("  ")] == [
        *("graph", "shared columns", "features", "together"),
        *("hop 1", "hop 2", "features", "together"),
    ]
    assert f"each machine makes at most {plan.batches_per_second:,.1f} mini-batches/s" in text


def test_the_command_measures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cluster, "measure_rank", lambda plan, seconds: RATE)
    given = "--nodes 20000 --edges 200000 --machines 3 --fanouts 10,10 --items 5000 --measure"
    assert main(["plan-cluster", *given.split()]) == 0
    assert capsys.readouterr().out == f"{ClusterPlan(**PLAN, num_items=5000, rank_rate=RATE)}\n"


def test_the_command_refuses_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan-cluster", "--nodes", "3", "--edges", "3", "--machines", "2", "--fanouts", "3,x"])
    assert "argument --fanouts: invalid fanouts value: '3,x'" in capsys.readouterr().err
