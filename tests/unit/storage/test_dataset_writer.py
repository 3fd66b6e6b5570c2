"""`DatasetWriter`: names of files, checksums in the metadata, and the folder after an error."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.storage.datasets import DatasetWriter, load_yaml

GRAPH: dict[str, Any] = {"graph_topology": {"path": "made/graph", "node_type_offset": None}}


def write(folder: Path, file: str, **options: Any) -> None:
    with DatasetWriter.open(folder, "made", "made", **options) as writer:
        np.save(writer.graph / "indices.npy", np.arange(2))
        np.save(writer.graph / "type_per_edge.npy", np.arange(2))
        with writer.rows("part_") as rows:
            for values in (np.arange(2, dtype=">i4"), np.arange(3, dtype=">i4")):
                rows.append("rows", values)
        content = {**GRAPH, "arrays": [writer.write("x", np.zeros(3), np.float32), writer.path(rows.file("rows"))]}
        np.save(writer.folder / "abandoned.npy", np.arange(2))
        writer.remove_others(content)
        writer.finish(content, file)


@pytest.mark.parametrize("file", ["metadata.yaml", "partition.json"])
def test_the_metadata_have_the_checksums_of_the_arrays_that_they_name(tmp_path: Path, file: str) -> None:
    write(tmp_path / "out", file)
    made = tmp_path / "out" / "made"
    arrays = {path.relative_to(made).as_posix(): path for path in sorted(made.rglob("*.npy"))}
    assert list(arrays) == ["graph/indices.npy", "part_rows.npy", "x_0.npy"]
    assert (np.load(arrays["part_rows.npy"]).tolist(), np.load(arrays["x_0.npy"]).dtype) == (
        [0, 1, 0, 1, 2],
        np.float32,
    )
    content = json.loads((made / file).read_text()) if file.endswith("json") else load_yaml(made / file)
    sums = {name: f"{zlib.crc32(path.read_bytes()):08x}" for name, path in arrays.items()}
    assert content == {**GRAPH, "arrays": ["made/x_0.npy", "made/part_rows.npy"], "checksums": sums}


def fail(folder: Path, **options: Any) -> None:
    with DatasetWriter.open(folder, **options) as writer:
        writer.finish({"x": writer.write("x", np.zeros(3))})
        raise RuntimeError


def test_an_error_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "out", "metadata.yaml")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RuntimeError):
        fail(tmp_path / "out", replace=True)
    assert sorted(tmp_path.rglob("*")) == before
