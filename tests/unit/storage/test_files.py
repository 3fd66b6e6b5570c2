"""Files of arrays: read without unpickling, stamped as checked, and mapped by other processes."""

import os
import pickle
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from graphfeed.ops.arguments import as_tensor
from graphfeed.storage import (
    DiskBasedFeature,
    ItemSet,
    OnDiskFeatureData,
    TorchBasedFeature,
    TorchBasedFeatureStore,
    load_graph,
)
from graphfeed.storage.memory import (
    FilePlace,
    Handle,
    find_places,
    has_stamp,
    memory_limit,
    new_stamp,
    read_tensors,
    stamp_file,
)
from graphfeed.storage.memory.outside_files import read_npy
from tests.kinds.digests import assert_same
from tests.stand_ins.forked import in_child


def test_a_file_larger_than_the_memory_is_mapped(disk_path: Path) -> None:
    rows = int(2 * memory_limit()) // 8
    with (disk_path / "rows.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (rows,)})
        file.truncate(file.tell() + 8 * rows)  # a hole, which needs no space on the disk
    mapped = torch.from_numpy(read_npy(disk_path / "rows.npy", mapped=True))
    (place,) = find_places([mapped])
    assert isinstance(place, FilePlace)
    again = place.open()  # as a worker does
    mapped[-1], again[0] = 5, 7
    assert mapped[[0, -1]].tolist() == [0, 5]
    assert again[[0, -1]].tolist() == [7, 0]


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", np.arange(3))
    for name, reason in (("objects.npy", "Python objects"), ("several.npz", "magic string")):
        with pytest.raises(ValueError, match=rf"{name} can't be read .*{reason}"):
            read_npy(tmp_path / name)


def plain_dict(default_factory: Any = None) -> dict[Any, Any]:
    """Return an empty dict instead of a defaultdict."""
    del default_factory
    return {}


STAND_INS = [(plain_dict, "collections.defaultdict"), dict]


class Mine:
    """A type that the program itself allows."""


@pytest.fixture
def allowed(tmp_path: Path) -> Iterator[Path]:
    """Yield a file with a defaultdict, in a program that allows its own types."""
    path, known = tmp_path / "edge_feats.pt", torch.serialization.get_safe_globals()
    torch.save(defaultdict(dict, {"a": {"feats": torch.arange(3)}}), path)
    torch.serialization.add_safe_globals([Mine])
    yield path
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(known)


@pytest.mark.since_torch("2.6")
def test_types_that_a_program_allows_are_as_before_whatever_threads_read_at_once(allowed: Path) -> None:
    programs: list[list[Any]] = [[], [defaultdict], [dict, defaultdict]]
    for own in programs:
        torch.serialization.add_safe_globals(own)
        before = set(torch.serialization.get_safe_globals())
        with ThreadPoolExecutor(4) as pool:
            every = list(pool.map(lambda _: read_tensors(allowed, STAND_INS), range(40)))
        for found in every:
            assert type(found) is dict
            assert_same(found["a"]["feats"], torch.arange(3))
        assert set(torch.serialization.get_safe_globals()) == before, own


def append(path: Path) -> Path:
    with path.open("ab") as file:
        file.write(b"more")
    return path


def touch(path: Path) -> Path:
    path.touch()
    return path


AFTER: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "nothing": (lambda path: path, True),
    "mv": (lambda path: path.rename(path.with_name("moved")), True),
    "cp -p": (lambda path: Path(shutil.copy2(path, path.with_name("copy"))), True),
    "cp": (lambda path: Path(shutil.copyfile(path, path.with_name("copy"))), False),
    "write": (append, False),
    "touch": (touch, False),
}


def test_a_stamp_goes_with_what_is_written(tmp_path: Path) -> None:
    for how, (change, keeps) in AFTER.items():
        path, stamp = tmp_path / f"file for {how}", new_stamp()
        path.write_bytes(b"what was checked")
        assert not has_stamp(path, stamp)
        stamp_file(path, stamp)
        assert has_stamp(change(path), stamp) == keeps, how


def test_what_metadata_may_hold_instead_is_no_stamp(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (1, 1))
    for stamp in (None, True, "1", 2.0, 2**80, -(2**80)):
        assert not has_stamp(tmp_path / "file", stamp), stamp


def open_feature(path: Path, **fields: Any) -> TorchBasedFeatureStore:
    return TorchBasedFeatureStore([OnDiskFeatureData("node", "feat", path=path, **fields)])


def test_a_pipe_in_place_of_a_file_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    readers: list[Callable[[Path], object]] = [
        load_graph,
        DiskBasedFeature,
        partial(open_feature, format="numpy"),
        partial(open_feature, format="numpy", in_memory=False),
        partial(open_feature, format="torch"),
    ]
    for read in readers:
        answer = in_child(partial(read, tmp_path / "pipe.npy"), seconds=20)
        assert answer.startswith(f"ValueError: {tmp_path / 'pipe.npy'} is not a regular file, but a pipe or"), answer


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


def test_pages_that_were_written_travel_and_what_the_receiver_writes_stays_with_it(path: Path) -> None:
    feature, old, new = TorchBasedFeature(map_rows(path)), [[20.0, 21.0, 22.0, 23.0]], [[-1.0] * 4]
    again, five = pickle.loads(pickle.dumps(feature)), torch.tensor([5])
    again.update(torch.tensor(new), five)
    assert feature.read(five).tolist() == np.load(path)[5:6].tolist() == old
    feature.update(torch.tensor(new), five)
    again = pickle.loads(pickle.dumps(feature))
    assert (again.read(five).tolist(), np.load(path)[5:6].tolist()) == (new, old)
    feature.update(torch.full((1, 4), -2.0), torch.tensor([6]))
    assert again.read(torch.tensor([6])).tolist() == [[-2.0] * 4], "from here on both share their memory"
    feature = TorchBasedFeature(map_rows(path, "r+"))
    packed = pickle.dumps(feature)
    feature.update(torch.tensor(new), five)
    assert pickle.loads(packed).read(five).tolist() == np.load(path)[5:6].tolist() == new


def test_a_file_that_was_touched_meanwhile_is_mapped_with_a_warning(path: Path) -> None:
    """A worker may replace a lost one in the middle of an epoch. Both read the same data."""
    feature = TorchBasedFeature(map_rows(path))
    packed = pickle.dumps(feature)
    written = np.load(path, mmap_mode="r+")
    written[5] = -1
    written.flush()
    os.utime(path, ns=(0, 0))
    with pytest.warns(UserWarning, match=rf"{path} was written to or touched since it was sent; don't change a file"):
        again = pickle.loads(packed)
    assert_same(again.read(), feature.read())
    assert again.read(torch.tensor([5])).tolist() == [[-1.0] * 4]


def test_a_file_that_was_replaced_or_removed_or_has_another_size_is_refused(path: Path) -> None:
    packed = pickle.dumps(TorchBasedFeature(map_rows(path)))
    other = path.with_name("other.npy")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    was_changed = r"has changed since it was sent: it was file \d+ of (\d+) bytes, and is file \d+ of \1 bytes; don't"
    with pytest.raises(RuntimeError, match=was_changed):
        pickle.loads(packed)
    packed = pickle.dumps(TorchBasedFeature(map_rows(path)))
    append(path)
    with pytest.raises(RuntimeError, match=rf"{path} has changed since it was sent: .*; don't change a file"):
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


def test_memory_of_no_file_lies_in_none_and_neither_does_a_tensor_of_an_array_that_numpy_mapped(path: Path) -> None:
    unknown = torch.from_numpy(np.load(path, mmap_mode="c"))
    assert find_places([torch.arange(ROWS), torch.empty(0), unknown]) == [None] * 3
