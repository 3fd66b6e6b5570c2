"""Original ids of nodes in the data source."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from graphfeed.ingest import EdgeTable, Spec, build_dataset, inspect_dataset
from graphfeed.storage.datasets.original_ids import OriginalIds, read_ids
from tests.kinds.refusals import check_refused

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


def test_metadata_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    edges = EdgeTable({"s": np.array(["a"]), "d": np.array(["b"])}, source="s", destination="d")
    build_dataset(Spec({"n:r:n": edges}), tmp_path / "out")
    path = tmp_path / "out" / "graphfeed" / "metadata.yaml"
    data = yaml.safe_load(path.read_text())
    for key in ("ids", "graph_topology", "skipped"):
        path.write_text(yaml.safe_dump({**data, key: "some text"}))
        with pytest.raises(ValueError, match=rf"metadata\.yaml: {key} must be a (mapping|list), but is 'some text'"):
            inspect_dataset(tmp_path / "out")


def test_the_ids_of_nodes_without_others_are_their_numbers() -> None:
    ids = OriginalIds(range(3))
    assert len(ids) == 3
    assert list(ids) == ids[:] == [0, 1, 2]
    assert (ids[-1], ids[torch.tensor([2, 0])]) == (2, [2, 0])
    assert ids.find(np.array([2, 1])).tolist() == [2, 1]


def test_ids_and_nodes_that_are_not_there_are_named(tmp_path: Path) -> None:
    ids, numbers = texts(), OriginalIds(range(3))
    no_files: list[Any] = [None, {}, {"values": "a.npy", "more": "b.npy"}, {"values": "../a.npy"}]
    for files in no_files:
        with pytest.raises(ValueError, match=r"ids\.a"):
            read_ids(tmp_path, files, "ids.a", True)
    three = np.zeros(3, dtype=np.uint8)
    check_refused([
        (lambda: ids[4], IndexError, "there is no node 4; there are 4"),
        (lambda: ids[-5], IndexError, "there is no node -5; there are 4"),
        (lambda: ids[torch.tensor([4])], IndexError, "nodes"),
        (lambda: numbers[3], IndexError, "there is no node 3"),
        (lambda: ids.find(["bob"]), KeyError, "no node had the id 'bob'"),
        (lambda: numbers.find([3]), KeyError, "no node had the id"),
        (lambda: numbers.find([-1]), KeyError, "no node had the id"),
        (lambda: numbers.find(["1"]), KeyError, "no node had the id"),
        (lambda: OriginalIds(np.array([7, 3, 7, 7])).find([3, 7]), KeyError, "several nodes had the id 7"),
        (lambda: OriginalIds(np.zeros(3)), ValueError, "must be integers or bytes, but are float64"),
        (lambda: OriginalIds(three, np.zeros(3)), ValueError, "the offsets of ids must be int64, but are float64"),
        (lambda: OriginalIds(three, np.array([2, 9]))[0], ValueError, r"the id of node 0 is at 2 to 9 of 3 bytes"),
    ])  # fmt: skip
