from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.partition import part_tasks
from graphfeed.distributed.partition.part_tasks import Rows, Target, write_edges, write_rows
from tests.distributed import graphs


def test_rows_are_those_that_a_part_owns_or_that_a_file_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_tasks, "BLOCK_NODES", 3)
    np.save(tmp_path / "values.npy", np.array([1, 0, 1, 1, 1, 0, 0, 1]))
    owned = [*Rows(tmp_path / "values.npy", (1, None), 1).pieces(2)]
    assert [ids.tolist() for ids in owned] == [[1, 2], [3], [6]]
    listed = [*Rows(tmp_path / "values.npy", (0, None), None).pieces(2)]
    assert torch.cat(listed).tolist() == [1, 0, 1, 1, 1, 0, 0, 1]


def test_a_task_that_runs_again_writes_the_same_bytes_with_the_same_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, feature = graphs.plain(), gf.TorchBasedFeature(torch.arange(200.0).reshape(100, 2))
    np.save(tmp_path / "parts.npy", np.arange(100, dtype=np.uint8) % 3)
    written = []
    for number, block in enumerate((100, 7)):
        monkeypatch.setattr(part_tasks, "BLOCK_NODES", block)
        folder = tmp_path / str(number)
        folder.mkdir()
        entries = write_edges(graph, tmp_path / "parts.npy", 1, 1000, folder)
        rows = Rows(tmp_path / "parts.npy", (0, None), 1)
        entries += write_rows(feature, rows, Target(1, "feature", ("node", None, "feat"), 0), folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        written.append((entries, [(path.relative_to(folder), path.read_bytes()) for path in files]))
        assert (folder / "part_1/indices.npy").stat().st_mtime == 1000
    assert written[0] == written[1]
    assert np.load(tmp_path / "0/part_1/feature_0.npy")[:, 0].tolist() == list(range(2, 200, 6))
