from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from graphfeed.ingest import EdgeTable, Spec, build_dataset, inspect_dataset
from graphfeed.storage.datasets import original_ids
from graphfeed.storage.datasets.original_ids import OriginalIds, read_ids, write_ids, write_reordered_ids

TEXTS = ["anne", "", "Jürgen", "x"]


def texts() -> OriginalIds:
    parts = [text.encode() for text in TEXTS]
    offsets = np.cumsum([0, *map(len, parts)])
    return OriginalIds(np.frombuffer(b"".join(parts), dtype=np.uint8), offsets)


def test_ids_of_nodes_are_found_both_ways() -> None:
    ids = texts()
    assert len(ids) == 4
    assert list(ids) == TEXTS
    assert (ids[2], ids[-1], ids[torch.tensor(0)]) == ("Jürgen", "x", "anne")
    assert ids[1:3] == TEXTS[1:3]
    assert ids[torch.tensor([3, 0], dtype=torch.int32)] == ids[[3, 0]] == ["x", "anne"]
    assert ids.find(["x", "anne"]).tolist() == [3, 0]
    numbers = OriginalIds(np.array([30, 10, 20]))
    assert numbers[[1, 0]] == [10, 30]
    assert numbers.find([20]).tolist() == [2]
    assert repr(numbers) == "OriginalIds(3 integers)"


def test_nodes_and_ids_that_are_not_there_are_errors() -> None:
    ids = texts()
    for node in (4, -5):
        with pytest.raises(IndexError, match=f"there is no node {node}; there are 4"):
            ids[node]
    with pytest.raises(IndexError, match="nodes"):
        ids[torch.tensor([4])]
    with pytest.raises(KeyError, match="no node had the id 'bob'"):
        ids.find(["bob"])
    with pytest.raises(KeyError, match="several nodes had the id 7"):
        OriginalIds(np.array([7, 3, 7, 7])).find([3, 7])


def test_they_are_the_same_from_files(tmp_path: Path) -> None:
    offsets = np.array([0, 2, 3])
    files = write_ids(tmp_path, "ids", np.frombuffer(b"abc", dtype=np.uint8), offsets)
    for in_memory in (True, False):
        assert read_ids(tmp_path, files, "ids.a", in_memory)[:] == ["ab", "c"]


@pytest.mark.parametrize("files", [None, {}, {"values": "a.npy", "more": "b.npy"}, {"values": "../a.npy"}])
def test_files_must_be_named_and_inside(tmp_path: Path, files: object) -> None:
    with pytest.raises(ValueError, match=r"ids\.a"):
        read_ids(tmp_path, files, "ids.a", True)


def test_other_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="the original ids must be integers or bytes, but are float64"):
        OriginalIds(np.zeros(3))
    with pytest.raises(ValueError, match="the offsets of ids must be int64, but are float64"):
        OriginalIds(np.zeros(3, dtype=np.uint8), np.zeros(3))
    with pytest.raises(ValueError, match=r"the id of node 0 lies at 2 to 9 of 3 bytes"):
        OriginalIds(np.zeros(3, dtype=np.uint8), np.array([2, 9]))[0]


@pytest.mark.parametrize("ids", [texts(), OriginalIds(np.array([30, 10, 20, 5])), OriginalIds(range(4))])
@pytest.mark.parametrize("order", [[3, 1, 0, 2], [2, 3, 1, 0]])
def test_ids_are_written_in_another_order(
    tmp_path: Path, ids: OriginalIds, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(original_ids, "PART_BYTES", 3)
    files = write_reordered_ids(tmp_path, "ids", ids, np.array(order))
    for in_memory in (True, False):
        assert list(read_ids(tmp_path, files, "ids", in_memory)) == [ids[node] for node in order]


@pytest.mark.parametrize("key", ["ids", "graph_topology", "skipped"])
def test_metadata_of_the_wrong_kind_is_named(tmp_path: Path, key: str) -> None:
    edges = EdgeTable({"s": np.array(["a"]), "d": np.array(["b"])}, source="s", destination="d")
    build_dataset(Spec({"n:r:n": edges}), tmp_path / "out")
    path = tmp_path / "out" / "graphfeed" / "metadata.yaml"
    data = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**data, key: "some text"}))
    with pytest.raises(ValueError, match=rf"metadata\.yaml: {key} must be a (mapping|list), but is 'some text'"):
        inspect_dataset(tmp_path / "out")


def test_the_ids_of_nodes_without_others_are_their_numbers() -> None:
    ids = OriginalIds(range(3))
    assert len(ids) == 3
    assert list(ids) == ids[:] == [0, 1, 2]
    assert (ids[-1], ids[torch.tensor([2, 0])]) == (2, [2, 0])
    assert ids.find(np.array([2, 1])).tolist() == [2, 1]
    assert repr(ids) == "OriginalIds(3 integers)"
    with pytest.raises(IndexError, match="there is no node 3"):
        ids[3]
    for wrong in (3, -1, "1"):
        with pytest.raises(KeyError, match="no node had the id"):
            ids.find([wrong])
