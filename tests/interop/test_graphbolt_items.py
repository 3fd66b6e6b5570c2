"""Items under the names that they had before `seeds`: pairs and their negatives in one list, as GraphBolt lays them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.interop.graphbolt import ALIGNMENT, numpy_save_aligned, translate
from graphfeed.storage import DiskBasedFeature
from tests.digests import assert_same

PAIRS = torch.tensor([[0, 10], [1, 11]])
SOURCES = torch.tensor([[2, 3], [4, 5]])
DESTINATIONS = torch.tensor([[12, 13], [14, 15]])


def first(items: gf.ItemSet | gf.HeteroItemSet) -> Any:
    return next(iter(gf.ItemSampler(items, batch_size=10)))


def test_seed_nodes_are_seeds() -> None:
    batch = first(gf.ItemSet((torch.arange(3), torch.arange(3) + 5), names=("seed_nodes", "labels")))
    assert_same([batch.seeds, batch.labels], [torch.arange(3), torch.arange(3) + 5])
    assert not hasattr(batch, "seed_nodes")


def test_pairs_alone_are_seeds() -> None:
    batch = first(gf.ItemSet((PAIRS, torch.tensor([1.0, 0.0])), names=("node_pairs", "labels")))
    assert_same([batch.seeds, batch.labels, batch.indexes], [PAIRS, torch.tensor([1.0, 0.0]), None])


@pytest.mark.parametrize(
    ("names", "members", "negatives"),
    [
        (("negative_dsts",), (DESTINATIONS,), [[0, 12], [0, 13], [1, 14], [1, 15]]),
        (("negative_srcs",), (SOURCES,), [[2, 10], [3, 10], [4, 11], [5, 11]]),
        (("negative_srcs", "negative_dsts"), (SOURCES, DESTINATIONS), [[2, 12], [3, 13], [4, 14], [5, 15]]),
    ],
)
def test_negatives_follow_the_pairs(names: tuple[str, ...], members: tuple[Any, ...], negatives: list[Any]) -> None:
    batch = first(gf.ItemSet((PAIRS, *members), names=("node_pairs", *names)))
    assert_same(batch.seeds, torch.cat([PAIRS, torch.tensor(negatives)]))
    assert_same(batch.labels, torch.tensor([1.0, 1, 0, 0, 0, 0]))
    assert_same(batch.indexes, torch.tensor([0, 1, 0, 0, 1, 1]))


def test_each_type_on_its_own() -> None:
    names = ("node_pairs", "negative_dsts")
    items = gf.HeteroItemSet(
        {
            "a:r:b": gf.ItemSet((PAIRS, DESTINATIONS), names=names),
            "b:s:a": gf.ItemSet((PAIRS[:1], DESTINATIONS[:1, :1]), names=names),
        }
    )
    batch = first(items)
    assert_same(batch.seeds["b:s:a"], torch.tensor([[0, 10], [0, 12]]))
    assert_same(batch.indexes, {"a:r:b": torch.tensor([0, 1, 0, 0, 1, 1]), "b:s:a": torch.tensor([0, 0])})
    assert_same(batch.labels["b:s:a"], torch.tensor([1.0, 0.0]))


def test_a_type_may_have_no_negatives() -> None:
    values = translate({"node_pairs": {"a": PAIRS, "b": PAIRS}, "negative_srcs": {"a": SOURCES}})
    assert_same(values["seeds"]["b"], PAIRS)
    assert_same(values["labels"]["b"], torch.ones(2))


def test_negatives_take_the_dtype_of_the_pairs_and_overwrite_labels() -> None:
    values = translate({"labels": torch.zeros(2), "node_pairs": PAIRS.int(), "negative_dsts": DESTINATIONS})
    assert values["seeds"].dtype == torch.int32
    assert len(values["labels"]) == 6


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"seeds under one name, but have \['seeds', 'node_pairs'\]"):
        translate({"seeds": PAIRS, "node_pairs": PAIRS})
    with pytest.raises(ValueError, match=r"but have \[\]; negative_srcs and negative_dsts go with node_pairs"):
        translate({"negative_srcs": SOURCES})
    with pytest.raises(ValueError, match=r"go with node_pairs, but the items have seed_nodes"):
        translate({"seed_nodes": PAIRS[:, 0], "negative_srcs": SOURCES})
    with pytest.raises(ValueError, match=r"negative_srcs must have shape \(2, k\), one row per pair, but has \(2,\)"):
        translate({"node_pairs": PAIRS, "negative_srcs": SOURCES[:, 0]})
    with pytest.raises(ValueError, match=r"must have one shape, but have \[1, 2\] columns"):
        translate({"node_pairs": PAIRS, "negative_srcs": SOURCES, "negative_dsts": DESTINATIONS[:, :1]})


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float16, np.float64, ">i4", "M8[s]"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (4, 3), (2, 3, 4)])
def test_numpy_reads_it_and_its_values_begin_at_a_page(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    numpy_save_aligned(tmp_path / "array.npy", array)
    again = np.load(tmp_path / "array.npy", allow_pickle=False)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    # NumPy 2.0 can't map nothing.
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r" if array.size else None)
    assert not isinstance(mapped, np.memmap) or mapped.offset == ALIGNMENT
    assert (tmp_path / "array.npy").stat().st_size == ALIGNMENT + array.nbytes


@pytest.mark.parametrize("array", [np.arange(12).reshape(3, 4).T, np.arange(12).reshape(3, 4)[:, ::2]])
def test_arrays_that_lie_otherwise_come_back_equal(array: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
    file = io.BytesIO()
    numpy_save_aligned(file, array)
    file.seek(0)
    assert np.array_equal(np.load(file), array)


def test_a_header_of_any_length_is_padded() -> None:
    kind = np.dtype([(f"column_{number}", np.int32) for number in range(300)])
    file = io.BytesIO()
    numpy_save_aligned(file, np.zeros(2, kind))
    assert (file.tell() - 2 * kind.itemsize) % ALIGNMENT == 0
    file.seek(0)
    assert np.array_equal(np.load(file), np.zeros(2, kind))


def test_a_path_gets_its_ending(tmp_path: Path) -> None:
    numpy_save_aligned(str(tmp_path / "rows.v1"), torch.arange(6.0).reshape(3, 2))
    assert_same(DiskBasedFeature(tmp_path / "rows.v1.npy").read(), torch.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("pickled", [False, True])
def test_objects_are_not_saved(pickled: bool, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"arr holds objects \(object\), which would have to be pickled; save numbers"):
        numpy_save_aligned(tmp_path / "x.npy", np.array([{}]), pickled)
    assert list(tmp_path.iterdir()) == []
