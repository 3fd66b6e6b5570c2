"""Graph files, and names in shared memory: written atomically, and never trusted without checks."""

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.storage import load_from_shared_memory, load_graph
from graphfeed.storage.graph.files import graph_file
from graphfeed.storage.graph.files.graph_file import ALIGNMENT, MAGIC, map_fields, name_to_path, verify_graph_file
from tests.kinds.digests import assert_same
from tests.kinds.small_graphs import make_graph, make_typed_graph
from tests.stand_ins.forked import in_child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a saved graph."""
    make_graph(w=torch.rand(9)).save(tmp_path / "graph")
    return tmp_path / "graph"


def with_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of a file."""
    data = path.read_bytes()
    begin = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : begin], "little")
    header = json.loads(data[begin : begin + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes((MAGIC + len(text).to_bytes(8, "little") + text).ljust(ALIGNMENT, b"\0") + data[ALIGNMENT:])


def test_saving_again_takes_the_place_of_what_was_there(path: Path) -> None:
    before = map_fields(path)
    make_typed_graph().save(path)
    assert_same(map_fields(path), make_typed_graph().fields())
    assert_same(before["indices"], make_graph().indices)  # it is still mapped
    assert [part.name for part in path.parent.iterdir()] == ["graph"]


def test_a_file_that_is_none_or_was_cut_is_refused(path: Path) -> None:
    data = path.read_bytes()
    foreign = r"graph is not a graph written by graphfeed; pass a file written by save\(\)"
    for content in (b"", b"not a graph"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=foreign):
            load_graph(path)
    for size in (20, 100, ALIGNMENT, 3 * ALIGNMENT):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"write it again|is not a graph"):
            load_graph(path)
    with pytest.raises(FileNotFoundError, match="missing"):
        load_graph(path.with_name("missing"))


WRONG: dict[str, Callable[[dict[str, Any]], None]] = {
    "it has version 2, and this release reads version 1": lambda header: header.update(version=2),
    "node_type_to_id is {'user': 'x'}": lambda header: header.update(node_type_to_id={"user": "x"}),
    "there is no field __class__": lambda header: header["arrays"][0].update(field="__class__"),
    "there is no field indices x": lambda header: header["arrays"][1].update(name="x"),
    "there is no field edge_attributes None": lambda header: header["arrays"][2].update(name=None),
    "KeyError: 'device'": lambda header: header["arrays"][0].update(dtype="device"),
    r"'csc_indptr' has the shape \[-6\]": lambda header: header["arrays"][0].update(shape=[-6]),
    "'edge_attributes/w' has a shape that no tensor has": lambda header: header["arrays"][2].update(shape=[0, 1 << 60]),
    "'csc_indptr' has a shape that no tensor has": lambda header: header["arrays"][0].update(shape=[1 << 62, 1 << 62]),
    "two tensors of the same name": lambda header: header["arrays"][1].update(field="csc_indptr"),
    r"its arrays must be at \[0, 4096, 8192\]": lambda header: header["arrays"][0].update(offset=-4096),
    r"must be at \[0, 4096, 8192\] and end at": lambda header: header["arrays"][1].update(offset=0),
    "but the file ends at 16384": lambda header: header["arrays"][2].update(shape=[1 << 40]),
    "node_type_to_id is \\['user'\\]": lambda header: header.update(node_type_to_id=["user"]),
    "'arrays'": lambda header: header.pop("arrays"),
    "it lacks indices": lambda header: header["arrays"].pop(1),
}


def test_a_header_that_says_something_else_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for message, change in WRONG.items():
        path.write_bytes(data)
        with_header(path, change)
        with pytest.raises(ValueError, match=f"has a header that can't be read: .*{message}.*; write it again"):
            load_graph(path)


@pytest.mark.usefixtures("no_leaks")
def test_what_has_the_name_of_a_graph_and_is_none() -> None:
    name = f"test-no-graph-{os.getpid()}"
    path = name_to_path(name)
    path.write_bytes(b"something else" * 1000)
    try:
        with pytest.raises(ValueError, match=f"{name} is not a graph written by graphfeed"):
            load_from_shared_memory(name)
    finally:
        path.unlink()


def test_a_folder_that_does_not_exist_is_named_when_a_graph_is_saved_to_it(path: Path) -> None:
    folder = path.parent / "none"
    with pytest.raises(FileNotFoundError, match=f"there is no folder to write graph to: '{folder}'"):
        load_graph(path).save(folder / "graph")


def test_a_name_that_is_no_files_is_refused() -> None:
    for name in ("", "a/b", "../x", "a b", "x" * 201, "a\n"):
        with pytest.raises(ValueError, match=r"name must be 1 to 200 letters, digits or any of '_.\+-', but is"):
            make_graph().copy_to_shared_memory(name)
        with pytest.raises(ValueError, match="name must be 1 to 200 letters"):
            load_from_shared_memory(name)


def test_other_users_can_neither_read_nor_write_a_graph_in_shared_memory() -> None:
    name, before = f"test-private-{os.getpid()}", os.umask(0)
    try:
        shared = make_graph().copy_to_shared_memory(name)
    finally:
        os.umask(before)
    assert name_to_path(name).stat().st_mode & 0o777 == 0o600
    del shared


def test_what_killed_processes_left_goes_with_the_next_save_and_what_others_write_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = (os.pipe() for _ in range(2))

    def write(file: Any, *arguments: Any) -> None:
        file.write(b"begun")
        file.flush()
        os.write(begun[1], b".")
        os.read(go_on[0], 1)
        os.kill(os.getpid(), signal.SIGKILL)

    before = path.read_bytes()
    (path.parent / "graph.training.part").touch()
    with monkeypatch.context() as patch, ThreadPoolExecutor() as threads:
        patch.setattr(graph_file, "write_fields", write)
        child = threads.submit(in_child, lambda: make_graph().save(path))
        os.read(begun[0], 1)
        patch.undo()
        make_typed_graph().save(path)
        assert len(list(path.parent.iterdir())) == 3, "somebody is writing"
        os.write(go_on[1], b".")
        assert child.result() == "ended with -9"
    path.write_bytes(before)
    assert len(list(path.parent.iterdir())) == 3
    make_typed_graph().save(path)
    assert sorted(part.name for part in path.parent.iterdir()) == ["graph", "graph.training.part"]


@cache
def saved() -> bytes:
    """Return the content of a graph's file."""
    with tempfile.TemporaryDirectory() as folder:
        make_typed_graph(w=torch.rand(6)).save(Path(folder) / "graph")
        return (Path(folder) / "graph").read_bytes()


@given(st.data())
def test_any_change_of_a_header_is_refused_or_is_a_graph(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, content = Path(folder) / "graph", bytearray(saved())
        length = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 8], "little")
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(MAGIC) + 8 + length - 1))
            content[place] = data.draw(
                st.one_of(st.sampled_from(list(b'0123456789-"[]{},:. \x00')), st.integers(0, 255))
            )
        path.write_bytes(content)
        with contextlib.suppress(ValueError, TypeError):
            load_graph(path).check()


def test_a_change_of_any_byte_is_noticed_by_the_checksum(path: Path) -> None:
    assert verify_graph_file(path) == json.loads(path.read_bytes()[len(MAGIC) + 8 :].partition(b"\0")[0])["checksum"]
    data = path.read_bytes()
    header = len(MAGIC) + 8 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    for place in [*range(header), *range(ALIGNMENT, len(data), 61), len(data) - 1]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match=path.name):
            verify_graph_file(path)
    path.write_bytes(data)
    with_header(path, lambda header: header.pop("checksum"))
    with pytest.raises(ValueError, match=r"has no checksum, because an earlier release wrote it"):
        verify_graph_file(path)
    assert_same(map_fields(path), make_graph(w=map_fields(path)["edge_attributes"]["w"]).fields())
