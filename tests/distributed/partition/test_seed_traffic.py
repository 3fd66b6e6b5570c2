from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import assign_nodes
from graphfeed.distributed.partition.plan_cluster import MESSAGE_BYTES
from graphfeed.distributed.partition.seed_traffic import BATCHES, count_seed_traffic
from tests.distributed import graphs
from tests.distributed.rank_processes import run_ranks


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


def test_it_prints_both() -> None:
    graph = graphs.plain()
    text = str(count_seed_traffic(graph, assign_nodes(graph, 1), 1, items(9), [3], 5))
    expected = "ranks send 0 B for a mini-batch with seeds of all parts, 0 B with those of its own part (owners=...)"
    assert text == expected


def test_what_does_not_fit_is_named() -> None:
    graph = graphs.plain()
    with pytest.raises(ValueError, match="assignment must have 100 values"):
        count_seed_traffic(graph, torch.zeros(9, dtype=torch.int32), 2, items(9), [3])
