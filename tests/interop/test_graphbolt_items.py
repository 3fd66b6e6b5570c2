"""Items under the names that they had before `seeds`: pairs and their negatives in one list, as GraphBolt lays them."""

import io
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.interop.graphbolt import ALIGNMENT, numpy_save_aligned, translate
from graphfeed.storage import DiskBasedFeature
from tests.digests import assert_same
from tests.refusals import Refusal, check_refused

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


NEGATIVES: list[tuple[dict[str, torch.Tensor], list[list[int]]]] = [
    ({"negative_dsts": DESTINATIONS}, [[0, 12], [0, 13], [1, 14], [1, 15]]),
    ({"negative_srcs": SOURCES}, [[2, 10], [3, 10], [4, 11], [5, 11]]),
    ({"negative_srcs": SOURCES, "negative_dsts": DESTINATIONS}, [[2, 12], [3, 13], [4, 14], [5, 15]]),
]


def test_negatives_follow_the_pairs() -> None:
    for members, negatives in NEGATIVES:
        batch = first(gf.ItemSet((PAIRS, *members.values()), names=("node_pairs", *members)))
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


def test_names_that_do_not_go_together_are_refused() -> None:
    short: Any = {"node_pairs": PAIRS, "negative_srcs": SOURCES, "negative_dsts": DESTINATIONS[:, :1]}
    rows: list[Refusal] = [
        (
            lambda: translate({"seeds": PAIRS, "node_pairs": PAIRS}),
            ValueError,
            r"seeds under one name, but have \['seeds', 'node_pairs'\]",
        ),
        (lambda: translate({"negative_srcs": SOURCES}), ValueError, r"have \[\]; negative_srcs and negative_dsts go w"),
        (
            lambda: translate({"seed_nodes": PAIRS[:, 0], "negative_srcs": SOURCES}),
            ValueError,
            "go with node_pairs, but the items have seed_nodes",
        ),
        (
            lambda: translate({"node_pairs": PAIRS, "negative_srcs": SOURCES[:, 0]}),
            ValueError,
            r"negative_srcs must have shape \(2, k\), one row per pair, but has \(2,\)",
        ),
        (lambda: translate(short), ValueError, r"must have one shape, but have \[1, 2\] columns"),
    ]
    check_refused(rows)


def test_numpy_reads_a_saved_array_whose_values_begin_at_a_page(tmp_path: Path) -> None:
    shapes = [(), (0,), (3, 0), (5,), (4, 3), (2, 3, 4)]
    for shape, dtype in product(shapes, [bool, np.uint8, np.int32, np.float16, np.float64, ">i4", "M8[s]"]):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        numpy_save_aligned(tmp_path / "array.npy", array)
        again = np.load(tmp_path / "array.npy", allow_pickle=False)
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert again.tobytes() == array.tobytes(), (shape, dtype)
        # NumPy 2.0 can't map nothing.
        mapped = np.load(tmp_path / "array.npy", mmap_mode="r" if array.size else None)
        assert not isinstance(mapped, np.memmap) or mapped.offset == ALIGNMENT
        assert (tmp_path / "array.npy").stat().st_size == ALIGNMENT + array.nbytes


def test_arrays_that_lie_otherwise_come_back_equal() -> None:
    array = np.arange(12).reshape(3, 4)
    for view in (array.T, array[:, ::2]):
        file = io.BytesIO()
        numpy_save_aligned(file, view)
        file.seek(0)
        assert np.array_equal(np.load(file), view)


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


def test_objects_are_not_saved(tmp_path: Path) -> None:
    for pickled in (False, True):
        with pytest.raises(ValueError, match=r"arr holds objects \(object\), which would have to be pickled; save num"):
            numpy_save_aligned(tmp_path / "x.npy", np.array([{}]), pickled)
    assert list(tmp_path.iterdir()) == []
