"""What a partition costs: edges that are cut, and bytes that ranks send for mini-batches."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import distinct
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.partition.report import PartitionReport, report_partition
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


@pytest.mark.slow
def test_seeds_of_their_own_part_save_most_of_what_ranks_send_where_few_edges_are_cut(tmp_path: Path) -> None:
    ranks = run_ranks("tests.distributed.traffic:send_for_own_seeds", 2, tmp_path, batch_size=50, batches=4)
    assert [rank["equal"] for rank in ranks] == [8, 8]
    assert sum(rank["own_part"] for rank in ranks) < 0.4 * sum(rank["all_parts"] for rank in ranks)


@pytest.mark.slow
def test_ranks_hold_and_send_what_the_formulas_say(tmp_path: Path) -> None:
    """Those of docs/many-machines.md, for even degrees and uniform sources."""
    ranks = run_ranks("tests.distributed.traffic:count_traffic", 3, tmp_path, share_memory=False)
    nodes, edges, batches = 20_000, 200_000, sum(rank["batches"] for rank in ranks)
    columns = [512, distinct(512, 5120, nodes)]
    inputs = distinct(columns[1], 10 * columns[1], nodes)
    sizes = [*(count * (4 + 4) + 10 * count * (4 + 4) for count in columns), inputs * (4 + 128)]
    assert [rank["exchanges"] for rank in ranks] == [len(sizes) * rank["batches"] for rank in ranks]
    for name, planned in {
        "sent": sum(2 / 3 * size + 2 * 2 * 296 for size in sizes) * batches,
        "edges": 10 * sum(columns) * batches,
        "graph_bytes": 3 * (8 + 1 + 4) * nodes + (8 + 8) * edges,
        "feature_bytes": 128 * nodes,
    }.items():
        assert sum(rank[name] for rank in ranks) == pytest.approx(planned, rel=0.02), name
