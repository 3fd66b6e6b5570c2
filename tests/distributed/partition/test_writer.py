import errno
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.part_book import smallest_dtype
from graphfeed.distributed.partition import edge_positions as partition_columns
from graphfeed.distributed.partition import writer as partition_writer
from graphfeed.distributed.partition.part_layout import FILE_NAME, read_metadata
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.storage.datasets.array_files import ArrayWriter
from graphfeed.storage.graph.assignment.assign import assign_nodes
from tests.distributed import graphs
from tests.scripts import run


def test_parts_are_numbered_by_integers_that_are_as_small_as_can_be(tmp_path: Path) -> None:
    root = write_partition(tmp_path / "parts", graphs.plain(), torch.full((100,), 2), 3)
    assert np.load(root / "node_parts.npy").dtype == np.uint8
    assert len(read_metadata(root).parts) == 3
    for most, dtype in ((255, torch.uint8), (256, torch.int16), (32767, torch.int16), (32768, torch.int32)):
        assert smallest_dtype(most + 1) == dtype
        assert torch.tensor(most, dtype=dtype) == most


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(FileExistsError, match="there is something at"):
        write_partition(tmp_path, graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    with pytest.raises(FileExistsError, match="there is something at"):
        write_partition(tmp_path / "mine", graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("root", [".", "", "../work", "link"])
def test_the_working_folder_is_refused_before_the_work_begins(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(partition_writer, "PartitionWriter", None)
    with pytest.raises(OSError, match="this is the working folder, which can't be replaced"):
        write_partition("../link" if root == "link" else root, graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "work"]


def test_a_folder_that_can_t_be_replaced_is_refused_before_the_work_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(source), None, str(target))

    (tmp_path / "mounted").mkdir()
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(partition_writer, "PartitionWriter", None)
    with pytest.raises(OSError, match=r"can't be replaced \(Device or resource busy\); give another root.*mounted"):
        write_partition(tmp_path / "mounted", graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mounted"]


def test_a_link_to_an_empty_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    write_partition(tmp_path / "link", graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert (tmp_path / "there" / FILE_NAME).is_file()
    assert (tmp_path / "link").is_symlink()


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_partition(tmp_path, graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert (tmp_path / FILE_NAME).is_file()


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


KILLED = """
import os, signal, sys
import torch
from graphfeed.distributed.partition import writer as partition_writer
from tests.distributed import graphs
from tests.scripts import run

def end(writer):
    os.kill(os.getpid(), signal.SIGKILL)

partition_writer.PartitionWriter.finish = end
partition_writer.write_partition(sys.argv[1], graphs.plain(), torch.zeros(100, dtype=torch.int64), 2)
"""


def test_a_killed_writer_leaves_no_partition(tmp_path: Path) -> None:
    assert run("-c", KILLED, str(tmp_path / "parts")).returncode == -signal.SIGKILL
    assert not (tmp_path / "parts").exists()
    write_partition(tmp_path / "parts", graphs.plain(), torch.zeros(100, dtype=torch.int64), 2)


def test_edges_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, parts = graphs.plain(), assign_nodes(graphs.plain(), 3, "hash")
    whole = write_partition(tmp_path / "whole", graph, parts, 3)
    monkeypatch.setattr(partition_columns, "PIECE", 17)
    monkeypatch.setattr(partition_writer, "PART_BYTES", 17)
    pieces = write_partition(tmp_path / "pieces", graph, parts, 3)
    names = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(names) > 10
    assert [path.relative_to(pieces) for path in sorted(pieces.rglob("*")) if path.is_file()] == names
    assert all((whole / name).read_bytes() == (pieces / name).read_bytes() for name in names)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), OSError("12 requested and 3 written")]
)
def test_a_full_disk_is_said_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def fill_disk(*_: object) -> None:
        raise error

    monkeypatch.setattr(ArrayWriter, "append", fill_disk)
    with pytest.raises(OSError, match=f"{error.args[-1]}; nothing is left there: '{tmp_path / 'parts'}'"):
        write_partition(tmp_path / "parts", graphs.plain(), torch.zeros(100, dtype=torch.int64), 1)
    assert list(tmp_path.iterdir()) == []
