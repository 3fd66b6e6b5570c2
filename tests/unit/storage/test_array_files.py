"""Arrays and edges in a dataset's files: read without unpickling, written in blocks, sorted in any memory."""

import shutil
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage import OnDiskFeatureData
from graphfeed.storage.datasets import (
    SCRATCH,
    EdgeArray,
    Sorting,
    load_array,
    run_tasks,
    write_array,
    write_edges,
)
from graphfeed.storage.datasets.array_files import open_array, read_csv_edges
from graphfeed.storage.datasets.edge_sorting import EdgeFiles, count_in_degrees, sort_tasks
from graphfeed.storage.features.torch_based_feature_store import open_feature
from graphfeed.testing import limits
from tests.kinds import reference
from tests.kinds.refusals import check_refused


def test_arrays_are_mapped_and_torch_is_read_in_both_of_its_formats(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    array = open_array(tmp_path / "a.npy", "numpy", "key")
    assert isinstance(array, np.memmap)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    for zipped in (True, False):
        torch.save(torch.arange(3), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
        assert open_array(tmp_path / "a.pt", "torch", "key").tolist() == [0, 1, 2], zipped


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "dict.pt")
    torch.save(torch.ones(1, dtype=torch.bfloat16), tmp_path / "half.pt")
    (tmp_path / "text.npy").write_text("1,2")
    np.savez(tmp_path / "many", a=np.ones(1))

    def opened(name: str, format: str) -> object:
        return open_array(tmp_path / name, format, "feature_data[0]")

    for name, format, words in (
        ("dict.pt", "torch", "holds a dict"),
        ("half.pt", "torch", "is bfloat16"),
        ("text.npy", "numpy", r"feature_data\[0\]: .*text.npy can't be read as numpy"),
        ("many.npz", "numpy", "can't be read as numpy"),
    ):
        with pytest.raises(ValueError, match=words):
            opened(name, format)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone\.npy"):
        opened("gone.npy", "numpy")


@limits(part_bytes=16)
def test_written_part_by_part(tmp_path: Path) -> None:
    arrays: list[Any] = [np.arange(7), np.zeros((0, 3)), np.ones((5, 2, 2), dtype=np.float16)]
    for array in arrays:
        write_array(tmp_path / "a.npy", array)
        again = np.load(tmp_path / "a.npy")
        assert again.dtype == array.dtype
        assert np.array_equal(again, array)


def test_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, end in product([3, 8, 1 << 20], ["", "\n", "\n\n", "\r\n"]):
        line = "\r\n" if end == "\r\n" else "\n"
        (tmp_path / "e.csv").write_bytes((line.join(["0,10", "3000000000,1", "2,2"]) + end).encode())
        with limits(part_bytes=part):
            edges = read_csv_edges(tmp_path / "e.csv", tmp_path / "pairs", "key")
        assert edges.tolist() == [[0, 3000000000, 2], [10, 1, 2]], (part, end)
    (tmp_path / "none.csv").write_text("\n")
    assert read_csv_edges(tmp_path / "none.csv", tmp_path / "pairs", "key").shape == (2, 0)
    (tmp_path / "edges.csv").write_text("3,4\n5,6\n", encoding="utf-8-sig")  # with a byte order mark
    assert read_csv_edges(tmp_path / "edges.csv", tmp_path / "pairs", "key").tolist() == [[3, 5], [4, 6]]


def test_edges_that_are_wrong_are_named(tmp_path: Path) -> None:
    def read(text: str) -> object:
        (tmp_path / "e.csv").write_text(text)
        return read_csv_edges(tmp_path / "e.csv", tmp_path / "pairs", "graph.edges[0]")

    def ends(name: str, wrong: int) -> object:
        both = np.zeros((2, 3), dtype=np.int64)
        both[int(name == "destination"), 2] = wrong
        return EdgeFiles(None, 0, (0, 0), "graph.edges[1]", both, (4, 4)).read(name, slice(0, 3))

    def other(edges: Any) -> object:
        return EdgeFiles(None, 0, (0, 0), "graph.edges[0]", edges, (1, 1))

    outside = r"graph\.edges\[1\]: {}s must be in 0 \.\. 3, but holds {}"
    gone = tmp_path / "gone"
    check_refused([
        (lambda: read("src,dst\n1,2\n"), ValueError, r"graph\.edges\[0\]: .*no header, but after 0 edges"),
        (lambda: read("1,2,3\n"), ValueError, r"graph\.edges\[0\]: .*there are 3 columns"),
        (lambda: read("1,2\n1.5,2\n"), ValueError, r"graph\.edges\[0\]: .*two columns of"),
        (lambda: read_csv_edges(gone, tmp_path / "pairs", "key"), FileNotFoundError, r"there is no file .*gone"),
        (lambda: ends("source", -1), ValueError, outside.format("source", -1)),
        (lambda: ends("source", 4), ValueError, outside.format("source", 4)),
        (lambda: ends("destination", -1), ValueError, outside.format("destination", -1)),
        (lambda: ends("destination", 4), ValueError, outside.format("destination", 4)),
        (lambda: other(np.zeros((3, 2), dtype=np.int64)), ValueError, r"edges should be \(2, N\), but got \(3, 2\)"),
        (lambda: other(np.zeros((2, 2))), ValueError, "edges must be integers, but are float64"),
    ])  # fmt: skip


def test_arrays_of_which_there_are_no_tensors_are_refused_with_their_path(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    readers: list[Callable[[], object]] = [
        lambda: open_array(path, "numpy", "key"),
        *(partial(load_array, path, "key", mapped=mapped) for mapped in (True, False)),
        *(
            partial(open_feature, OnDiskFeatureData("node", "x", "numpy", path, in_memory=where))
            for where in (True, False)
        ),
    ]
    kinds: list[Any] = [["a", "b"], np.zeros(2, "i4,f4"), np.zeros(2, "M8[D]"), np.zeros(2, "g")]
    for values, read in product(kinds, readers):
        np.save(path, np.asarray(values)[:, None])
        with pytest.raises(ValueError, match=r"x\.npy holds .*, which tensors can't have; save numbers"):
            read()


def test_a_negative_shape_is_refused_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (-1, 4)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    for in_memory in (True, False):
        with pytest.raises(ValueError, match=r"x\.npy .*(\(-1, 4\)|negative dimensions)"):
            open_feature(OnDiskFeatureData("node", "x", "numpy", path, in_memory=in_memory))


def quiet() -> ProgressBar:
    return progress_bar("", 0, "edge", wanted=False)


@limits(part_values=3)
def test_any_memory_gives_the_same_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, (2, 30)), rng.integers(0, 4, (2, 20)).astype(np.int32)
    time = rng.random((30, 2))
    lists = [
        EdgeFiles("r", 0, (0, 0), "a", first, (5, 5), {"edge_0": time}),
        EdgeFiles("s", 1, (0, 5), "b", second, (5, 4), {"edge_0": time[:20] + 1}),
    ]
    indptr = count_in_degrees(lists, 9, quiet())
    out = [
        EdgeArray(tmp_path / "indices", "source", np.dtype(np.int32)),
        EdgeArray(tmp_path / "types", "type", np.dtype(np.uint8)),
        EdgeArray(tmp_path / "rows", "row", np.dtype(np.int64)),
        EdgeArray(tmp_path / "time", "edge_0", np.dtype(np.float64), (2,)),
    ]
    np.save(tmp_path / "indptr.npy", indptr.astype(np.int32))
    sources = [*first[0], *second[0]]
    destinations = [*first[1], *(second[1] + 5)]
    expected = reference.coo_to_csc(sources, destinations, 9)
    order = expected[2]
    assert indptr.tolist() == expected[0]
    for memory in (1, 100, 1 << 30):
        tasks = sort_tasks(lists, tmp_path / "indptr.npy", out, Sorting(memory))
        assert sum(run_tasks(tmp_path, tasks).values()) == 50
        assert np.load(tmp_path / "indices").tolist() == [sources[place] for place in order], memory
        assert np.load(tmp_path / "types").tolist() == [int(place >= 30) for place in order], memory
        assert np.load(tmp_path / "rows").tolist() == [place % 30 for place in order], memory
        assert np.array_equal(np.load(tmp_path / "time"), np.concatenate([time, time[:20] + 1])[order]), memory
        for name in ("indices", "types", "rows", "time"):
            (tmp_path / name).unlink()
        shutil.rmtree(tmp_path / SCRATCH)


def test_sorting_takes_eight_bytes_a_node_beside_the_edges(tmp_path: Path) -> None:
    nodes = 1 << 22
    edges = EdgeFiles(None, 0, (0, 0), "a", np.array([[0], [nodes - 1]]), (nodes, nodes))
    tracemalloc.start()
    try:
        write_edges(tmp_path, [edges], {None: nodes}, {}, True, Sorting(1 << 20), lambda *_: quiet())
        assert tracemalloc.get_traced_memory()[1] < 14 * nodes  # 8 of them, and a part to convert and write
    finally:
        tracemalloc.stop()
    assert np.load(tmp_path / "indices.npy").tolist() == [0]
