from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.__main__ import main
from graphfeed.distributed import ClusterPlan
from graphfeed.distributed.plan_cluster import QUESTION_BYTES
from graphfeed.storage import CPUFeatureCache
from tests.distributed.ranks import run_ranks

PLAN: dict[str, Any] = {"num_nodes": 20_000, "num_edges": 200_000, "machines": 3, "fanouts": [10, 10]}


@pytest.mark.slow
def test_what_is_planned_is_what_ranks_hold_and_send(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"row_cache_bytes": 900_000, "column_cache_bytes": 800_000}
    found = run_ranks("tests.distributed.real_graphs:count_with_caches", 3, tmp_path, **sizes)
    plain = ClusterPlan(**PLAN, batch_size=512, feature_width=32)
    with_caches = replace(plain, **sizes)
    assert (0.3 < with_caches.kept_rows < 0.5, 0.2 < with_caches.kept_columns < 0.4) == (True, True)
    for plan, ranks in zip((plain, with_caches), zip(*found, strict=True), strict=True):
        batches = sum(rank["batches"] for rank in ranks)
        assert [rank["exchanges"] for rank in ranks] == [plan.exchanges * rank["batches"] for rank in ranks]
        for name, planned in {
            "sent": plan.network_bytes * batches,
            "edges": sum(hop.edges for hop in plan.hops) * batches,
            "graph_bytes": plan.graph_bytes * 3,
            "feature_bytes": plan.feature_bytes * 3,
        }.items():
            assert sum(rank[name] for rank in ranks) == pytest.approx(planned, rel=0.02), name


@pytest.mark.slow
def test_processes_of_a_machine_take_the_memory_that_is_planned(tmp_path: Path) -> None:
    plan = ClusterPlan(**{**PLAN, "machines": 1}, batch_size=512, feature_width=32, ranks_per_machine=3)
    assert (plan.parts, plan.network_bytes, plan.exchanges) == (3, 0, 0)
    for rank in run_ranks("tests.distributed.real_graphs:count_traffic", 3, tmp_path, share_memory=True):
        assert rank["merged_bytes"] == pytest.approx(plan.merged_bytes, rel=0.02)
        assert rank["graph_bytes"] == pytest.approx(plan.graph_bytes, rel=0.02)
    together = 3 * plan.graph_bytes + plan.merged_bytes + plan.feature_bytes
    assert f"  columns, shared {plan.merged_bytes / 1e6:>13.1f} MB".split() == str(plan).splitlines()[2].split()
    assert f"{together / 1e6:.1f} MB" in str(plan).splitlines()[4]


def test_processes_of_other_machines_are_asked_each() -> None:
    alone, four = (ClusterPlan(**PLAN, ranks_per_machine=count) for count in (1, 4))
    assert four.hop_traffic(four.hops[0])[0] - alone.hop_traffic(alone.hops[0])[0] == 6 * 320
    assert (alone.merged_bytes, four.away) == (0, alone.away)


def test_hops_grow_by_fan_outs_and_degrees_up_to_the_whole_graph() -> None:
    plan = ClusterPlan(**{**PLAN, "fanouts": [-1, -1, 4]}, batch_size=10)
    assert plan.hops[0] == (10, 40)
    assert plan.hops[1].edges == pytest.approx(10 * plan.hops[1].columns)
    assert ClusterPlan(**{**PLAN, "fanouts": [-1] * 9}).input_nodes == pytest.approx(20_000)
    assert ClusterPlan(**PLAN, batch_size=30_000).hops[0].columns == 20_000


def test_types_and_small_ids_change_the_bytes_of_an_edge() -> None:
    sizes = [
        ClusterPlan(**PLAN, id_dtype=dtype, has_types=has_types).edge_bytes
        for dtype in (torch.int64, torch.int32)
        for has_types in (False, True)
    ]
    assert sizes == [16, 17, 12, 13]


def test_ids_below_two_to_the_31_take_four_bytes_on_the_network_whatever_their_dtype() -> None:
    small = ClusterPlan(**PLAN)
    assert (small.sent_id_bytes, small.sent_edge_bytes) == (4, 8)
    many_edges = ClusterPlan(**{**PLAN, "num_edges": (1 << 31) + 1}, has_types=True)
    assert (many_edges.sent_id_bytes, many_edges.sent_edge_bytes) == (4, 13)
    assert ClusterPlan(**{**PLAN, "num_nodes": (1 << 31) + 1}).sent_edge_bytes == 12


def test_one_machine_sends_nothing() -> None:
    plan = ClusterPlan(**{**PLAN, "machines": 1}, feature_width=4)
    assert (plan.network_bytes, plan.exchanges, plan.batches_per_second) == (0, 0, inf)
    assert plan.feature_bytes == 20_000 * 4 * 4
    assert "nothing crosses the network" in str(plan)


def test_caches_take_memory_of_each_process_and_save_what_they_have_room_for() -> None:
    plain = ClusterPlan(**PLAN, feature_width=4, ranks_per_machine=2)
    cached = replace(plain, row_cache_bytes=300_000, column_cache_bytes=400_000)
    assert cached.cache_bytes == 2 * 700_000
    hop = plain.hops[1]
    heads = 4 * QUESTION_BYTES
    asked, asked_still = plain.hop_traffic(hop)[0] - heads, cached.hop_traffic(hop)[0] - heads
    assert asked_still == pytest.approx(asked * (1 - cached.kept_columns))
    assert cached.kept_columns == pytest.approx((400_000 - 9 * 20_000 - 8) / (16 * 200_000 * 2 / 3))
    kept = CPUFeatureCache.within(300_000, (4,), torch.float32)._rows.shape[0]
    assert cached.kept_rows == pytest.approx(kept / (20_000 * 2 / 3))
    lines = str(cached).splitlines()
    assert "  caches                   1.4 MB" in lines
    assert f"caches have room for {cached.kept_rows:.1%} of the others' rows, and save as much if" in str(cached)
    assert "caches" not in str(plain)


def test_caches_with_room_for_all_leave_nothing_to_ask() -> None:
    plan = ClusterPlan(**PLAN, feature_width=4, row_cache_bytes=1 << 30, column_cache_bytes=1 << 30)
    assert (plan.kept_rows, plan.kept_columns, plan.network_bytes, plan.batches_per_second) == (1, 1, 0, inf)
    assert plan.exchanges == 0
    assert str(plan).splitlines()[-1] == "once the caches are full, nothing crosses the network"
    assert replace(plan, row_cache_bytes=0).exchanges == 1
    assert ClusterPlan(**{**PLAN, "machines": 1}, column_cache_bytes=1 << 30).kept_columns == 0


def test_the_rate_is_that_of_the_network() -> None:
    plan = ClusterPlan(**PLAN, feature_width=16, feature_dtype=torch.float16, gbit_per_second=8)
    assert plan.batches_per_second * plan.network_bytes == pytest.approx(1e9)
    assert ClusterPlan(**PLAN).exchanges == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 0}, "num_nodes must be 1 or more, but is 0"),
        ({"machines": 0}, "machines must be 1 or more, but is 0"),
        ({"fanouts": []}, "fanouts must have one number per hop, but is empty"),
        ({"fanouts": [5, -2]}, "a fan-out must be -1 or more, but is -2"),
        ({"id_dtype": torch.int16}, "id_dtype must be torch.int32 or torch.int64, but is torch.int16"),
        ({"num_nodes": 1 << 31, "id_dtype": torch.int32}, "id_dtype must be torch.int64 for 2147483648 nodes"),
        ({"row_cache_bytes": -1}, "row_cache_bytes must be 0 or more, but is -1"),
        ({"row_cache_bytes": 1}, "row_cache_bytes needs rows to keep, but feature_width is 0"),
        ({"column_cache_bytes": 180_008}, "column_cache_bytes must be 0 or more than the 180008 that it takes to find"),
        ({"gbit_per_second": 0}, "gbit_per_second must be a positive number, but is 0"),
    ],
)
def test_what_is_out_of_range_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterPlan(**{**PLAN, **change})


def test_the_command_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    given = "--nodes 20000 --edges 200000 --machines 3 --fanouts 10,5 --batch-size 512 --width 32 --dtype float16"
    caches = ["--row-cache", "0.0002", "--column-cache", "0.0003"]
    assert main(["plan-cluster", *given.split(), "--ids", "int32", "--types", "--gbit", "25", *caches]) == 0
    options = {"row_cache_bytes": 200_000, "column_cache_bytes": 300_000}
    plan = ClusterPlan(20_000, 200_000, 3, [10, 5], 512, 32, torch.float16, torch.int32, True, 25.0, **options)
    text = capsys.readouterr().out
    assert text == f"{plan}\n"
    assert "at 25 Gbit/s, each of 3 machines makes at most" in text
    assert "  hop 1                       512        2,560" in text


def test_the_command_refuses_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan-cluster", "--nodes", "3", "--edges", "3", "--machines", "2", "--fanouts", "3,x"])
    assert "--fanouts: must be numbers between commas, such as 10,10, but is '3,x'" in capsys.readouterr().err
