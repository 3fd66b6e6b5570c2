import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.distributed.partition import writer as partition_writer
from graphfeed.distributed.partition.part_layout import read_metadata
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.storage.graph.assignment.assign import assign_nodes
from tests.distributed import graphs
from tests.forked import in_child


def test_parts_are_numbered_by_integers_that_are_as_small_as_can_be(tmp_path: Path) -> None:
    root = write_partition(tmp_path / "parts", graphs.plain(), torch.full((100,), 2), 3)
    assert np.load(root / "node_parts.npy").dtype == np.uint8
    assert len(read_metadata(root).parts) == 3
    for most, dtype in ((255, torch.uint8), (256, torch.int16), (32767, torch.int16), (32768, torch.int32)):
        assert smallest_dtype(most + 1) == dtype
        assert torch.tensor(most, dtype=dtype) == most


def test_a_folder_with_something_in_it_is_refused_before_the_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("keep")
    monkeypatch.setattr(partition_writer, "PartitionWriter", None)
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        write_partition(tmp_path, graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("key", "rows", "message"),
    [
        (("node", None, "feat"), 99, "must have 100 rows, one for each node, but has 99"),
        (("edge", None, "feat"), 600, "features of edge type None have 600 rows, but there is an edge 699"),
        (("node", "user", "feat"), 100, r"a feature is of node type 'user', but the graph has \[None\]"),
        (("edge", "user", "feat"), 700, r"a feature is of edge type 'user', but the graph has \[None\]"),
    ],
)
def test_a_failure_leaves_nothing(tmp_path: Path, key: tuple[str, str | None, str], rows: int, message: str) -> None:
    store = gf.BasicFeatureStore({key: gf.TorchBasedFeature(torch.zeros(rows, 1))})
    with pytest.raises(ValueError, match=message):
        write_partition(tmp_path / "parts", graphs.plain(), torch.zeros(100, dtype=torch.int64), 2, store)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["shop", None])
def test_features_of_types_that_a_typed_graph_lacks_are_refused(tmp_path: Path, kind: str | None) -> None:
    store = gf.BasicFeatureStore({("edge", kind, "feat"): gf.TorchBasedFeature(torch.zeros(3, 1))})
    with pytest.raises(ValueError, match="a feature is of edge type"):
        write_partition(tmp_path / "parts", graphs.typed(), assign_nodes(graphs.typed(), 2), 2, store)


def test_a_killed_writer_leaves_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        write_partition(tmp_path / "parts", graphs.plain(), torch.zeros(100, dtype=torch.int64), 2)

    with monkeypatch.context() as patch:
        patch.setattr(partition_writer.PartitionWriter, "finish", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert in_child(write) == "ended with -9"
    assert not (tmp_path / "parts").exists()
    write()


def test_edges_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, parts = graphs.plain(), assign_nodes(graphs.plain(), 3, "hash")
    whole = write_partition(tmp_path / "whole", graph, parts, 3)
    stamp = read_metadata(whole).written
    monkeypatch.setattr(partition_columns, "PIECE", 17)
    monkeypatch.setattr(partition_writer, "PART_BYTES", 17)
    monkeypatch.setattr(partition_writer, "new_stamp", lambda: stamp)
    pieces = write_partition(tmp_path / "pieces", graph, parts, 3)
    names = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(names) > 10
    assert [path.relative_to(pieces) for path in sorted(pieces.rglob("*")) if path.is_file()] == names
    assert all((whole / name).read_bytes() == (pieces / name).read_bytes() for name in names)
