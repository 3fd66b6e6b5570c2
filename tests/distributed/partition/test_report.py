"""What a partition costs: edges that are cut, and bytes that ranks send for mini-batches."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.partition.plan_cluster import MESSAGE_BYTES
from graphfeed.distributed.partition.report import PartitionReport, report_partition
from graphfeed.distributed.partition.seed_traffic import BATCHES, count_seed_traffic
from graphfeed.storage.graph.assignment.assign import assign_nodes, stacked_assignment
from tests.distributed import graphs
from tests.distributed.rank_processes import run_ranks


def test_it_counts_what_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_columns, "PIECE", 37)
    for graph in (graphs.plain(), graphs.typed()):
        for num_parts in (1, 3, 200):
            assignment = assign_nodes(graph, num_parts, "hash")
            report = report_partition(graph, assignment, num_parts)
            parts = stacked_assignment(graph, assignment, num_parts)
            ends = gf.expand_indptr(graph.csc_indptr, torch.int64)
            for part in range(num_parts):
                own = parts[ends] == part
                remote = graph.indices[own][parts[graph.indices[own]] != part]
                found = (report.nodes[part], report.edges[part], report.cut_edges[part], report.halo_nodes[part])
                assert found == (int((parts == part).sum()), int(own.sum()), len(remote), len(set(remote.tolist())))
            by_type = assignment if isinstance(assignment, dict) else {}
            assert report.nodes_by_type == {
                kind: tuple(torch.bincount(own, minlength=num_parts).tolist()) for kind, own in by_type.items()
            }


def test_shares_are_of_the_whole_graph() -> None:
    report = PartitionReport((3, 1), (5, 5), (1, 2), (1, 3), {"user": (1, 1), "shop": (0, 0)})
    assert (report.num_parts, report.cut, report.halo) == (2, 0.3, 1.0)
    assert report.balance == {"nodes": 1.5, "user": 1.0, "shop": 1.0, "in-edges": 1.0}


def test_it_prints_as_a_table() -> None:
    report = PartitionReport((3000, 1000), (5, 5), (1, 2), (1, 3), {"user": (3000, 1000)})
    assert str(report).splitlines() == [
        "part  nodes  in-edges  cut  cut %  halo",
        "   0  3,000         5    1  20.0%     1",
        "   1  1,000         5    2  40.0%     3",
        " all  4,000        10    3  30.0%     4",
        "largest part over the mean: nodes 1.50, user 1.50, in-edges 1.00",
    ]


def halves(num_nodes: int, num_edges: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose edges all go from its first half to its second."""
    half = num_nodes // 2
    return gf.from_coo((torch.arange(num_edges) % half, torch.arange(num_edges) % half + half), num_nodes)


def users(num_nodes: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph with types and few edges."""
    return gf.from_coo({"user:knows:user": ([0, 1], [1, 0])}, {"user": num_nodes})


@pytest.mark.parametrize(
    ("graph", "num_parts", "dtype"),
    [
        (lambda: halves(2, 1 << 22), 2, torch.uint8),
        pytest.param(lambda: halves(1 << 20, 3 << 20), 2, torch.int32, marks=pytest.mark.thorough),
        pytest.param(lambda: users(1 << 21), 8, torch.int64, marks=pytest.mark.thorough),
    ],
)
def test_it_takes_no_more_memory_than_it_says(graph: Any, num_parts: int, dtype: torch.dtype) -> None:
    whole = graph()
    assignment = assign_nodes(whole, num_parts, "range")
    assignment = (
        {k: v.to(dtype) for k, v in assignment.items()} if isinstance(assignment, dict) else assignment.to(dtype)
    )
    own = stacked_assignment(whole, assignment, num_parts)
    shared = isinstance(assignment, torch.Tensor)
    tracemalloc.start()
    report_partition(whole, assignment, num_parts)
    peak = tracemalloc.get_traced_memory()[1] + (0 if shared else own.nbytes)  # tracemalloc doesn't see tensors
    tracemalloc.stop()
    assert peak <= (56 << 20) + 42 * whole.total_num_nodes


def test_a_graph_without_nodes_has_a_report() -> None:
    graph = gf.from_coo(torch.empty(2, 0, dtype=torch.int64), 0)
    report = report_partition(graph, torch.empty(0, dtype=torch.int32), 2)
    assert (report.cut, report.halo) == (0, 0)
    assert "all" in str(report)


def items(count: int) -> gf.ItemSet:
    return gf.ItemSet(count, names="seeds")


def test_bytes_are_those_of_remote_nodes_and_edges() -> None:
    """Node 0 to 3 and 4 to 7 are two rings, each of which a part owns; each node of theirs has one in-edge."""
    ends = torch.arange(8)
    rings = gf.from_coo(((ends + 1) % 4 + ends // 4 * 4, ends), num_nodes=8)
    halves = ends // 4
    found = count_seed_traffic(rings, halves, 2, items(8), [1], 4, row_bytes=100)
    assert found.own_part == 0
    source = gf.DistributedItemSampler(items(8), 4, shuffle=True, rank=0, world_size=1)
    expected = 0
    for rank, batch in enumerate(source.sample_neighbor(rings, [1])):
        seeds, nodes = (int((halves[ids] != rank).sum()) for ids in (batch.seeds, batch.input_nodes))
        expected += seeds * (4 + 4) + seeds * (4 + 4) + nodes * (4 + 100) + 2 * MESSAGE_BYTES
    assert found.all_parts == expected / 2


def test_all_seeds_of_another_part_are_asked_for_in_one_message_each() -> None:
    graph = gf.from_coo((torch.arange(6), torch.arange(6)), num_nodes=6)
    found = count_seed_traffic(graph, torch.arange(6) % 3, 3, items(6), [1], 6)
    # One mini-batch, of a rank that owns two of its six nodes, each of which has an edge.
    assert found.all_parts == 4 * (4 + 4) + 4 * (4 + 4) + 2 * MESSAGE_BYTES


def test_seeds_of_their_own_part_save_most_where_few_edges_are_cut() -> None:
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    by_method = {
        method: count_seed_traffic(graph, assign_nodes(graph, 4, method), 4, items(4000), [5, 5], 50, 64)
        for method in ("hash", "ldg")
    }
    assert by_method["ldg"].all_parts > 0.6 * by_method["hash"].all_parts
    assert by_method["ldg"].own_part < 0.4 * by_method["ldg"].all_parts
    assert by_method["hash"].own_part > 0.6 * by_method["hash"].all_parts


@pytest.mark.slow
def test_what_is_counted_is_what_ranks_send_for_the_mini_batches_of_one_process(tmp_path: Path) -> None:
    ranks = run_ranks("tests.distributed.traffic:send_for_own_seeds", 2, tmp_path, batch_size=50, batches=BATCHES // 2)
    assert [rank["equal"] for rank in ranks] == [BATCHES, BATCHES]
    graph = graphs.communities(num_nodes=4000, size=50, degree=8)
    counted = count_seed_traffic(graph, assign_nodes(graph, 2, "ldg"), 2, items(4000), [5, 5], 50, 64)
    for name in ("all_parts", "own_part"):
        sent = sum(rank[name] for rank in ranks) / BATCHES
        assert sent == pytest.approx(getattr(counted, name), rel=0.05), name


def test_types_have_rows_of_their_own() -> None:
    graph, sets = graphs.typed(), gf.HeteroItemSet({"user": items(90), "item": items(40)})
    assignment = assign_nodes(graph, 2, "hash")
    options: Any = {"fanouts": [2, 2], "batch_size": 13}
    bare, rows = (count_seed_traffic(graph, assignment, 2, sets, **options, row_bytes=size) for size in (0, 100))
    users = count_seed_traffic(graph, assignment, 2, sets, **options, row_bytes={"user": 100, "item": 0, "shop": 0})
    assert bare.all_parts < users.all_parts < rows.all_parts
    assert count_seed_traffic(graph, assign_nodes(graph, 1, "hash"), 1, sets, **options).all_parts == 0


def test_it_prints_both_and_what_does_not_fit_is_named() -> None:
    graph = graphs.plain()
    text = str(count_seed_traffic(graph, assign_nodes(graph, 1), 1, items(9), [3], 5))
    expected = "ranks send 0 B for a mini-batch with seeds of all parts, 0 B with those of its own part (owners=...)"
    assert text == expected
    with pytest.raises(ValueError, match="assignment must have 100 values"):
        count_seed_traffic(graph, torch.zeros(9, dtype=torch.int32), 2, items(9), [3])
