"""Tensors that lie in a mapped file are sent as the place in it."""

import gc
import os
import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.mappings import all_mapped
from graphfeed.storage import ItemSet, TorchBasedFeature
from graphfeed.storage.memory.shared import FilePlace, Handle, find_places
from tests.digests import assert_same

ROWS = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with more rows than are sent by value."""
    np.save(tmp_path / "rows.npy", np.arange(4 * ROWS, dtype=np.float32).reshape(ROWS, 4))
    return tmp_path / "rows.npy"


def map_rows(path: Path, mode: Literal["c", "r", "r+"] = "c") -> torch.Tensor:
    return as_tensor("rows", np.load(path, mmap_mode=mode))


def lies_in_file(tensor: torch.Tensor) -> bool:
    return isinstance(find_places([tensor])[0], FilePlace)


def test_a_mapped_feature_arrives_as_its_file(path: Path) -> None:
    modes: list[Literal["c", "r", "r+"]] = ["c", "r", "r+"]
    for mode in modes:
        feature = TorchBasedFeature(map_rows(path, mode))
        address = feature.read().data_ptr()
        packed = pickle.dumps(feature)
        again = pickle.loads(packed)
        assert len(packed) < 1000
        assert feature.read().data_ptr() == address, "the sender's rows stay where they are"
        assert lies_in_file(again.read()), mode
        assert_same(again.read(), feature.read())
        assert_same(pickle.loads(pickle.dumps(again)).read(), feature.read())


def test_views_keep_their_strides(path: Path) -> None:
    rows = map_rows(path)
    views = (rows.T[:, :9], rows[7::3, 1:3], rows[:, None, 2:].transpose(0, 2))
    for view in views:
        (place,) = find_places([view])
        assert isinstance(place, FilePlace)
        assert_same(place.open(), view)


def test_own_pages_travel_with_what_was_written_to_them(path: Path) -> None:
    feature = TorchBasedFeature(map_rows(path))
    feature.update(torch.full((1, 4), -1.0), torch.tensor([5]))
    again = pickle.loads(pickle.dumps(feature))
    assert again.read(torch.tensor([5])).tolist() == [[-1.0] * 4]
    assert np.load(path)[5, 0] == 20, "the file is as it was"
    feature.update(torch.full((1, 4), -2.0), torch.tensor([6]))
    assert again.read(torch.tensor([6])).tolist() == [[-2.0] * 4], "from here on both share their memory"


def test_a_file_that_is_mapped_for_writing_is_shared_with_its_writes(path: Path) -> None:
    feature = TorchBasedFeature(map_rows(path, "r+"))
    packed = pickle.dumps(feature)
    feature.update(torch.full((1, 4), -1.0), torch.tensor([5]))
    assert pickle.loads(packed).read(torch.tensor([5])).tolist() == [[-1.0] * 4]


def test_what_the_receiver_writes_stays_with_it(path: Path) -> None:
    feature = TorchBasedFeature(map_rows(path))
    again = pickle.loads(pickle.dumps(feature))
    again.update(torch.full((1, 4), -1.0), torch.tensor([5]))
    assert feature.read(torch.tensor([5])).tolist() == np.load(path)[5:6].tolist() == [[20.0, 21.0, 22.0, 23.0]]


def test_a_file_that_was_touched_meanwhile_is_mapped_with_a_warning(path: Path) -> None:
    """A worker may take the place of a lost one in the middle of an epoch. What was written is the same for both."""
    feature = TorchBasedFeature(map_rows(path))
    packed = pickle.dumps(feature)
    written = np.load(path, mmap_mode="r+")
    written[5] = -1
    written.flush()
    os.utime(path, ns=(0, 0))
    with pytest.warns(UserWarning, match=rf"{path} was written to or touched since it was sent; leave a file as"):
        again = pickle.loads(packed)
    assert_same(again.read(), feature.read())
    assert again.read(torch.tensor([5])).tolist() == [[-1.0] * 4]


def test_a_file_of_another_size_is_refused(path: Path) -> None:
    feature = TorchBasedFeature(map_rows(path))
    packed = pickle.dumps(feature)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(RuntimeError, match=rf"{path} has changed since it was sent: .*; leave a file as"):
        pickle.loads(packed)


def test_a_file_that_was_replaced_or_removed_meanwhile_is_refused(path: Path) -> None:
    rows = map_rows(path)
    packed = pickle.dumps(TorchBasedFeature(rows))
    other = path.with_name("other.npy")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(
        RuntimeError,
        match=r"has changed since it was sent: it was file \d+ of (\d+) bytes, and is file \d+ of \1 bytes; leave",
    ):
        pickle.loads(packed)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"rows.npy, .*, can't be opened \(No such file or directory\)"):
        pickle.loads(packed)


def test_rows_of_a_file_that_is_gone_before_move_to_shared_memory(path: Path) -> None:
    rows = torch.arange(4.0 * ROWS).reshape(ROWS, 4)
    for replaced in (False, True):
        feature = TorchBasedFeature(map_rows(path))
        path.unlink()
        if replaced:
            np.save(path, np.zeros((ROWS, 4), dtype=np.float32))
        again = pickle.loads(pickle.dumps(feature))
        assert isinstance(find_places([again.read()])[0], Handle)
        assert_same(again.read(), rows)
        np.save(path, rows.numpy())


def test_tensors_of_files_and_of_memory_go_together(path: Path) -> None:
    rows, labels = map_rows(path), torch.arange(ROWS)
    items = ItemSet((labels, rows, torch.arange(ROWS, 2 * ROWS)), names=("seeds", "labels", "indexes"))
    received = pickle.loads(pickle.dumps(items))
    for again in (received, pickle.loads(pickle.dumps(received))):
        assert_same(again[:], items[:])
        assert [lies_in_file(member) for member in again._items] == [False, True, False]
        block = find_places([again._items[0]])[0]
        assert isinstance(block, Handle)
        assert block.size < 4 * labels.nbytes


def test_of_a_slice_of_a_mapped_array_only_its_part_of_the_file_is_sent(path: Path) -> None:
    items = ItemSet(np.load(path, mmap_mode="r")[ROWS // 2 :], names="labels")
    again = pickle.loads(pickle.dumps(items))
    assert lies_in_file(again._items[0])
    assert_same(again[:], torch.from_numpy(np.load(path)[ROWS // 2 :]))


def test_what_is_known_of_a_file_goes_with_the_last_tensor_over_it(path: Path) -> None:
    rows, before = map_rows(path), len(all_mapped())
    part = rows[5:7]
    del rows
    gc.collect()
    assert lies_in_file(part)
    assert len(all_mapped()) == before
    del part
    gc.collect()
    assert len(all_mapped()) == before - 1


def test_memory_of_no_file_lies_in_none_and_neither_does_a_tensor_of_an_array_that_numpy_mapped(path: Path) -> None:
    unknown = torch.from_numpy(np.load(path, mmap_mode="c"))
    assert find_places([torch.arange(ROWS), torch.empty(0), unknown]) == [None] * 3
