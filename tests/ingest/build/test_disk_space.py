"""A disk that is too small for a data set is named before anything is read."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, build_dataset
from graphfeed.ingest.build.disk_space import GB, check_free_space, least_bytes
from graphfeed.ingest.build.spec import Table
from graphfeed.ingest.tables.table import find_sources
from tests.ingest.example_tables import likes
from tests.on_disk import listing


def test_a_disk_that_is_too_small_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = likes(tmp_path)
    before = listing(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(OSError, match=r"the data set takes 0\.0 GB at least while it is made, and 0\.0 GB are free"):
        build_dataset(spec, tmp_path / "out")
    assert listing(tmp_path) == before


def test_what_an_earlier_run_has_written_counts_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * GB))
    with (tmp_path / "scratch.npy").open("wb") as file:
        file.truncate(GB)
    check_free_space(tmp_path, 4 * GB)
    with pytest.raises(OSError, match=r"takes 4\.1 GB at least while it is made, and 4\.0 GB are free"):
        check_free_space(tmp_path, 4 * GB + GB // 10)


def test_the_least_is_that_of_edges_and_features(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    columns = {"x": pa.array([0.5, 1.5]), "n": pa.array([1, 2], pa.int16()), "v": pa.array([[1.5, 2.5, 3.5]] * 2)}
    nodes = NodeTable(pa.table(columns), features={"a": "a.npy", "b": ["x", "n"], "c": "v"})
    edges = EdgeTable({"source": np.arange(7), "destination": np.arange(7), "w": np.arange(7)}, weight="w")
    (tmp_path / "e.csv").write_text("source,destination,w\n1,2,3\n")
    tables: dict[str, dict[str | None, Table]] = {"nodes": {"n": nodes}, "edges": {"n:r:n": edges}}
    sources = {
        (key, name): find_sources(table.files, tmp_path, header=True, pairs=False)
        for key, entries in tables.items()
        for name, table in entries.items()
    }
    sources["edges", "n:r:n"] += find_sources(["e.csv"], tmp_path, header=True, pairs=False)
    of_edges, of_features = 7 * (12 + 2 * 4), 5 * 2 * 4 + 2 * (4 + 2 + 3 * 4)
    assert least_bytes(sources, tables, tmp_path) == of_edges + of_features
    sources["nodes", "n"] += find_sources([pa.table(columns).slice(0, 0)], tmp_path, header=True, pairs=False)
    assert least_bytes(sources, tables, tmp_path, "skip") == of_edges + 2 * of_features
