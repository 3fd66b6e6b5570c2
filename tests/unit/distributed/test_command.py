"""`graphfeed partition`, and the report that it prints."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.datapipes.pipeline import distinct
from graphfeed.distributed import PartitionReport, assign_nodes, open_part, report_partition
from graphfeed.distributed.partition.command import open_stored
from graphfeed.storage.graph import stacked_assignment
from graphfeed.storage.memory import find_places
from graphfeed.testing import limits
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same
from tests.stand_ins.rank_processes import run_ranks

METADATA = """
dataset_name: small
graph:
  nodes: [{num: 6}]
  edges: [{format: csv, path: edges.csv}]
feature_data: [{domain: node, name: feat, format: numpy, path: feat.npy}]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    graphs.plain().save(tmp_path / "graph")
    return tmp_path / "graph"


def partition(*arguments: object) -> int:
    return main(["partition", *map(str, arguments)])


@pytest.mark.parametrize("method", ["hash", "range", "ldg"])
def test_a_saved_graph_is_partitioned(
    source: Path, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert partition(source, tmp_path / "parts", "--parts", 3, "--method", method, "--seed", 5) == 0
    graph = graphs.plain()
    assignment = assign_nodes(graph, 3, method, seed=5)
    assert isinstance(assignment, torch.Tensor)
    for part in range(3):
        stored = open_part(tmp_path / "parts", part, check=True)
        assert_same(stored.graph.book.ids_of(part), torch.nonzero(assignment == part).flatten())
    text = capsys.readouterr().out
    assert str(report_partition(graph, assignment, 3)) in text
    assert ("takes at most" in text) == (method == "ldg")


def test_the_edges_and_rows_of_a_data_set_stay_in_their_files(tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(METADATA + "graph_topology: {in_memory: true}\n")
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    np.save(tmp_path / "feat.npy", np.zeros((6, 2)))
    for _ in range(2):  # the second time, the files are prepared already
        stored = open_stored(tmp_path)
        assert None not in find_places([stored.graph.csc_indptr, stored.graph.indices])
        assert stored.feature is not None
        assert isinstance(stored.feature["node", None, "feat"], gf.DiskBasedFeature)


def test_a_data_set_is_partitioned_with_its_features(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "metadata.yaml").write_text(METADATA)
    (folder / "edges.csv").write_text("0,1\n1,2\n2,3\n3,4\n4,5\n5,0\n5,1\n")
    np.save(folder / "feat.npy", np.arange(12.0).reshape(6, 2))
    options = ["--parts", 2, "--method", "range"]
    assert partition(folder, tmp_path / "parts", *options) == 0
    assert open_part(tmp_path / "parts", 1).features.read("node", None, "feat").tolist() == [[6, 7], [8, 9], [10, 11]]


def test_the_layout_of_pyg_may_be_chosen(source: Path, tmp_path: Path) -> None:
    assert partition(source, tmp_path / "parts", "--parts", 2, "--layout", "pyg") == 0
    assert (tmp_path / "parts" / "META.json").is_file()
    found = [open_part(tmp_path / "parts", part).graph.edge_ids() for part in range(2)]
    assert torch.cat(found).sort().values.tolist() == list(range(700))


@pytest.mark.slow
def test_processes_write_the_parts(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert partition(source, tmp_path / "parts", "--parts", 3, "--workers", 2) == 0
    assert partition(source, tmp_path / "here", "--parts", 3) == 0
    for name in ("csc_indptr", "indices"):
        files = [(tmp_path / root / f"part_1/{name}.npy").read_bytes() for root in ("parts", "here")]
        assert files[0] == files[1]
    assert partition(source, tmp_path / "other", "--parts", 2, "--workers", 0) == 1
    assert "--workers must be 1 or more" in capsys.readouterr().err


def test_items_to_train_on_are_balanced(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges = torch.stack([torch.arange(40), torch.arange(40) % 7], dim=1)
    np.save(tmp_path / "edges.npy", edges.numpy())
    given = "--parts", 3, "--balance", tmp_path / "edges.npy"
    assert partition(source, tmp_path / "parts", *given) == 0
    graph = graphs.plain()
    assignment: Any = assign_nodes(graph, 3, "ldg", balance=edges[:, 1])
    assert_same(open_part(tmp_path / "parts", 1).graph.book.ids_of(1), torch.nonzero(assignment == 1).flatten())
    counts = torch.bincount(assignment[edges[:, 1]], minlength=3)
    text = capsys.readouterr().out
    assert f"items of the largest part over the mean: {int(counts.max()) * 3 / 40:.2f}\n" in text


def test_items_have_types_where_nodes_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs.typed().save(tmp_path / "graph")
    np.save(tmp_path / "users.npy", np.arange(0, 40, 2))
    np.save(tmp_path / "likes.npy", np.array([[0, 3], [1, 5]]))
    users, likes = f"user={tmp_path}/users.npy", f"user:likes:item={tmp_path}/likes.npy"
    for number, given in enumerate([[users, f"item={tmp_path}/users.npy"], [likes]]):
        assert partition(tmp_path / "graph", tmp_path / f"parts{number}", "--parts", 2, "--balance", *given) == 0
        assert "items of the largest part over the mean: 1.0" in capsys.readouterr().out
    for wrong in ([users, users], [f"{tmp_path}/users.npy", likes]):
        assert partition(tmp_path / "graph", tmp_path / "other", "--parts", 2, "--balance", *wrong) == 1
        assert "--balance takes one file, or TYPE=FILE once for each type" in capsys.readouterr().err


def test_what_does_not_fit_is_said(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert partition(source, tmp_path, "--parts", 2) == 1
    found = capsys.readouterr()
    assert "exists and is not an empty folder" in found.err
    assert found.out == "", "before anything is read"
    assert partition(source, tmp_path / "parts", "--parts", 0) == 1
    assert "num_parts must be 1 or more, but is 0" in capsys.readouterr().err
    assert partition(source, tmp_path / "parts", "--parts", 10**9) == 1
    assert "num_parts must be at most 65,536" in capsys.readouterr().err
    assert partition(source, tmp_path / "parts", "--parts", 2, "--method", "hash", "--balance", "items.npy") == 1
    assert "--balance needs --method ldg, but got hash" in capsys.readouterr().err
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "metadata.yaml").write_text("dataset_name: small\n")
    assert partition(tmp_path / "small", tmp_path / "parts", "--parts", 2) == 1
    assert "metadata.yaml does not contain graph field" in capsys.readouterr().err
    assert not (tmp_path / "parts").exists()


@limits(part_values=37)
def test_it_counts_what_is_cut() -> None:
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


def test_shares_are_of_the_whole_graph_which_may_be_empty() -> None:
    empty = report_partition(gf.from_coo(torch.empty(2, 0, dtype=torch.int64), 0), torch.empty(0, dtype=torch.int32), 2)
    assert (empty.cut, empty.halo) == (0, 0)
    assert "all" in str(empty)
    report = PartitionReport((3, 1), (5, 5), (1, 2), (1, 3), {"user": (1, 1), "shop": (0, 0)})
    assert (report.num_parts, report.cut, report.halo) == (2, 0.3, 1.0)
    assert report.balance == {"nodes": 1.5, "user": 1.0, "shop": 1.0, "in-edges": 1.0}


@pytest.mark.slow
def test_seeds_of_their_own_part_save_most_of_what_ranks_send_where_few_edges_are_cut(tmp_path: Path) -> None:
    ranks = run_ranks("tests.stand_ins.traffic:send_for_own_seeds", 2, tmp_path, batch_size=50, batches=4)
    assert [rank["equal"] for rank in ranks] == [8, 8]
    assert sum(rank["own_part"] for rank in ranks) < 0.4 * sum(rank["all_parts"] for rank in ranks)


@pytest.mark.slow
def test_ranks_hold_and_send_what_the_formulas_say(tmp_path: Path) -> None:
    """The numbers of docs/many-machines.md, for equal degrees and uniform sources."""
    ranks = run_ranks("tests.stand_ins.traffic:count_traffic", 3, tmp_path)
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
