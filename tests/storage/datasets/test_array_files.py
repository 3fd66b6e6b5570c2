from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.storage.datasets import array_files
from graphfeed.storage.datasets.array_files import (
    ArrayWriter,
    load_array,
    open_array,
    read_csv_edges,
    sync_folder,
    write_array,
    write_text,
)
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData, open_feature


class Opened:
    """Something that only unpickling makes."""


def test_numpy_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    array = open_array(tmp_path / "a.npy", "numpy", "key")
    assert isinstance(array, np.memmap)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_in_both_of_its_formats(tmp_path: Path, zipped: bool) -> None:
    torch.save(torch.arange(3), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert open_array(tmp_path / "a.pt", "torch", "key").tolist() == [0, 1, 2]


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, {}]), allow_pickle=True)
    torch.save(Opened(), tmp_path / "a.pt")
    for name, format in (("a.npy", "numpy"), ("a.pt", "torch")):
        with pytest.raises(ValueError, match=rf"feature_data\[0\]: .*{name} can't be read as {format}"):
            open_array(tmp_path / name, format, "feature_data[0]")


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "dict.pt")
    torch.save(torch.ones(1, dtype=torch.bfloat16), tmp_path / "half.pt")
    (tmp_path / "text.npy").write_text("1,2")
    (tmp_path / "empty.npy").touch()
    np.savez(tmp_path / "many", a=np.ones(1))
    for name, format, text in (
        ("dict.pt", "torch", "holds a dict"),
        ("half.pt", "torch", "is bfloat16"),
        ("text.npy", "numpy", "can't be read as numpy"),
        ("empty.npy", "numpy", "can't be read as numpy"),
        ("many.npz", "numpy", "must hold one numpy array"),
    ):
        with pytest.raises(ValueError, match=text):
            open_array(tmp_path / name, format, "key")
    with pytest.raises(FileNotFoundError, match=r"key: there is no file .*gone\.npy"):
        open_array(tmp_path / "gone.npy", "numpy", "key")


@pytest.mark.parametrize("array", [np.arange(7), np.zeros((0, 3)), np.ones((5, 2, 2), dtype=np.float16)])
def test_written_part_by_part(tmp_path: Path, array: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "PART_BYTES", 16)
    write_array(tmp_path / "a.npy", array)
    again = np.load(tmp_path / "a.npy")
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


def test_rows_that_are_missing_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must get 3 rows, but got 2"), ArrayWriter(tmp_path / "a", (3,), "i8") as out:
        out.append(np.arange(2))


def test_text_and_folder_reach_the_disk(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "ü")
    sync_folder(tmp_path)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "ü"
    write_text(tmp_path / "a.txt", "o")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "o"


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n"])
@pytest.mark.parametrize("part", [3, 8, 1 << 20])
def test_csv(tmp_path: Path, end: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "PART_BYTES", part)
    line = "\r\n" if end == "\r\n" else "\n"
    (tmp_path / "e.csv").write_bytes((line.join(["0,10", "3000000000,1", "2,2"]) + end).encode())
    edges = read_csv_edges(tmp_path / "e.csv", tmp_path / "pairs", "key")
    assert edges.tolist() == [[0, 3000000000, 2], [10, 1, 2]]


def test_csv_without_a_line(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("\n")
    assert read_csv_edges(tmp_path / "e.csv", tmp_path / "pairs", "key").shape == (2, 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("src,dst\n1,2\n", "no header, but after 0 edges"),
        ("1,2,3\n", "there are 3 columns"),
        ("1,2\n1.5,2\n", "two columns of"),
    ],
)
def test_csv_that_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "e.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"graph\.edges\[0\]: .*{error}"):
        read_csv_edges(tmp_path / "e.csv", tmp_path / "pairs", "graph.edges[0]")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone"):
        read_csv_edges(tmp_path / "gone", tmp_path / "pairs_of_it", "key")


@pytest.mark.parametrize("values", [["a", "b"], np.zeros(2, "i4,f4"), np.zeros(2, "M8[D]"), np.zeros(2, "g")], ids=str)
@pytest.mark.parametrize("shape", [(2,), (2, 1)], ids=str)
def test_arrays_of_which_there_are_no_tensors_are_refused_with_their_path(
    tmp_path: Path, values: Any, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.asarray(values).reshape(shape))
    readers: list[Callable[[], object]] = [
        lambda: open_array(path, "numpy", "key"),
        *(partial(load_array, path, "key", mapped=mapped) for mapped in (True, False)),
        *(
            partial(open_feature, OnDiskFeatureData("node", "x", "numpy", path, in_memory=where))
            for where in (True, False)
        ),
    ]
    for read in readers:
        with pytest.raises(ValueError, match=r"x\.npy holds .*, of which there are no tensors; save numbers"):
            read()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_negative_shape_is_refused_with_the_path(tmp_path: Path, in_memory: bool) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (-1, 4)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    with pytest.raises(ValueError, match=r"x\.npy .*(\(-1, 4\)|negative dimensions)"):
        open_feature(OnDiskFeatureData("node", "x", "numpy", path, in_memory=in_memory))


def test_a_csv_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("3,4\n5,6\n", encoding="utf-8-sig")
    assert read_csv_edges(tmp_path / "edges.csv", tmp_path / "pairs", "key").tolist() == [[3, 5], [4, 6]]
