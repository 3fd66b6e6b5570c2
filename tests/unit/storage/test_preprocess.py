"""A dataset is preprocessed once, as long as neither files nor options change, and atomically."""

import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from graphfeed.storage import OnDiskDataset, preprocess_ondisk_dataset
from graphfeed.storage.datasets import preprocess
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.testing import limits
from tests.kinds import on_disk
from tests.kinds.refusals import check_refused
from tests.stand_ins.forked import in_child


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return on_disk.write(tmp_path, on_disk.untyped(tmp_path))


def made(folder: Path, **options: Any) -> int:
    """Preprocess a folder; return a number that changes if that is done again."""
    preprocess_ondisk_dataset(folder, **options)
    return (folder / "graphfeed").stat().st_ino


def test_it_returns_the_metadata_that_it_made_and_pickles_nothing(folder: Path) -> None:
    path = preprocess_ondisk_dataset(folder, True)
    assert path == str(folder.resolve() / "graphfeed" / "metadata.yaml")
    data = yaml.safe_load(Path(path).read_text())
    assert (data["include_original_edge_id"], data["dataset_name"]) == (True, "small")
    assert data["feature_data"][0]["name"] == "feat"
    assert on_disk.listing(folder / "graphfeed" / "graph") == [
        "csc_indptr.npy", "edge_0.npy", "edge_id.npy", "indices.npy", "node_0.npy",
    ]  # fmt: skip
    files = [path for path in (folder / "graphfeed").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".npy", ".yaml"}
    on_disk.arrays(folder)  # numpy.load allows no pickle
    data = yaml.safe_load((folder / "metadata.yaml").read_text())
    del data["feature_data"][1]  # edge features need edge ids
    on_disk.write(folder, data)
    for include in (False, True):
        topology = yaml.safe_load(Path(preprocess_ondisk_dataset(folder, include)).read_text())["graph_topology"]
        assert (ORIGINAL_EDGE_ID in topology["edge_attributes"]) == include


def test_only_once_and_anew_where_that_is_asked_for_or_options_are_others(folder: Path) -> None:
    before = made(folder)
    assert made(folder) == before
    ids: dict[str, Any] = {"include_original_edge_id": True}
    for options in ({"force_preprocess": True}, ids, {**ids, "auto_cast_to_optimal_dtype": False}):
        assert made(folder, **options) != before
        before = (folder / "graphfeed").stat().st_ino
    assert made(folder, force_preprocess=False) == before


def test_a_changed_source_is_noticed(folder: Path) -> None:
    before = made(folder)
    for name in ("edges/all.npy", "opt/weight.npy", "feat.npy", "set/train.npy", "metadata.yaml"):
        if name == "metadata.yaml":
            (folder / name).write_text((folder / name).read_text() + "\n")
        else:
            os.utime(folder / name, ns=(1, 1))
        assert made(folder, force_preprocess=False) == before, name
        assert made(folder) != before, name
        before = (folder / "graphfeed").stat().st_ino


def test_with_a_digest_sources_are_the_same_by_their_content_and_may_be_moved_or_deleted(folder: Path) -> None:
    place = folder / "data"
    place.mkdir()
    on_disk.write(place, on_disk.untyped(place))
    before = made(place, digest=True)
    os.utime(place / "edges" / "all.npy", ns=(1, 1))
    assert made(place) == before
    place.rename(folder / "moved")
    assert made(folder / "moved") == before
    assert OnDiskDataset(folder / "moved").load().feature.count("node", None, "feat") == 4
    weights = np.load(folder / "moved" / "opt" / "weight.npy")
    np.save(folder / "moved" / "opt" / "weight.npy", weights + 1)
    assert made(folder / "moved", digest=True) != before
    before = (folder / "moved" / "graphfeed").stat().st_ino
    shutil.rmtree(folder / "moved" / "edges")
    assert made(folder / "moved") == before
    with pytest.raises(FileNotFoundError, match=r"graph\.edges\[0\]: there is no file"):
        preprocess_ondisk_dataset(folder / "moved", force_preprocess=True)
    assert on_disk.arrays(folder / "moved")


def test_a_folder_without_metadata_is_not_used(folder: Path) -> None:
    (folder / "graphfeed").mkdir()
    (folder / "graphfeed" / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="it is not a processed folder; move it away"):
        preprocess_ondisk_dataset(folder)
    assert (folder / "graphfeed" / "mine.txt").exists()


@limits(preprocess_seconds=0.2)
def test_a_process_waits_for_another(folder: Path) -> None:
    descriptor = os.open(folder / preprocess.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(TimeoutError, match=r"another process has been writing .* try again"):
            preprocess_ondisk_dataset(folder)
    finally:
        os.close(descriptor)
    preprocess_ondisk_dataset(folder)


def test_two_processes_make_it_once(folder: Path) -> None:
    def make() -> int:
        preprocess_ondisk_dataset(folder)
        return (folder / "graphfeed/metadata.yaml").stat().st_ino

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(in_child, [make] * 2)
    assert int(one) == int(other)


def test_what_can_not_be_preprocessed_is_named(tmp_path: Path) -> None:
    def process(key: str, value: Any) -> object:
        data = on_disk.change(on_disk.untyped(tmp_path), key, value)
        if key == "graph.nodes.0.num":
            del data["graph"]["feature_data"]
        return preprocess_ondisk_dataset(on_disk.write(tmp_path, data))

    (tmp_path / "empty").mkdir()
    path = r"\.path is '\.\./x\.npy'"
    data = "tasks.0.train_set.0.data.1.path"
    too_many = f"the number of nodes is {2**62}: with 8 bytes for each node"
    check_refused([
        (lambda: process("graph.edges.0.path", "../x.npy"), ValueError, r"graph\.edges\[0\]" + path),
        (lambda: process("graph.feature_data.0.path", "../x.npy"), ValueError, r"feature_data\[0\]" + path),
        (lambda: process(data, "../x.npy"), ValueError, r"tasks\[0\]\.train_set\[0\]\.data\[1\]" + path),
        (lambda: process("graph", None), ValueError, "Invalid config: .* does not contain graph field"),
        (lambda: process("graph.nodes.0.num", 2**62), ValueError, too_many),
        (lambda: preprocess_ondisk_dataset(tmp_path / "empty"), FileNotFoundError, r"metadata\.yaml does not exist"),
        (lambda: preprocess_ondisk_dataset(tmp_path / "gone"), FileNotFoundError, "Invalid dataset path"),
    ])  # fmt: skip
