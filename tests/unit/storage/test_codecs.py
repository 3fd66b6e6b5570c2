"""Tensors are bit-identical after encoding and decoding in each format, and messages are checked."""

import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphfeed.distributed.partition.part_layout import ArrayEntry, map_entry, to_numpy
from graphfeed.distributed.wire import from_batch, to_batch
from graphfeed.interop.graphbolt import numpy_save_aligned
from graphfeed.loader.transport import decode, encode
from graphfeed.loader.transport.pickling import dump
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.memory import ALIGNMENT, Bytes, as_bytes
from graphfeed.storage import fused_csc_sampling_graph
from graphfeed.storage.datasets import write_array
from graphfeed.storage.datasets.array_files import open_array
from graphfeed.storage.graph.files.graph_file import map_fields
from graphfeed.storage.memory import (
    FilePlace,
    Frame,
    Shareable,
    SharedBlock,
    decode_tensors,
    describe_tensors,
    encode_tensors,
    find_places,
    map_npy,
    read_frame,
    read_specs,
)
from graphfeed.storage.memory.outside_files import read_array, read_npy
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.tensors import tensor as tensor_in

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
"""Dtypes that NumPy has, too."""

OTHERS = [torch.bfloat16, torch.float8_e4m3fn, torch.complex32]
SHAPES = [(), (0,), (3,), (2, 0), (4, 5), (2, 3, 4), (40, 5, 11), (70_000, 1)]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda tensor: tensor,
    "turned": lambda tensor: tensor.movedim(0, -1) if tensor.dim() else tensor,
    "every other": lambda tensor: tensor[..., ::2] if tensor.dim() else tensor,
    "a part": lambda tensor: tensor[1:] if tensor.dim() else tensor,
    "one many times": lambda tensor: (
        tensor[:1].expand(3, *tensor.shape[1:]) if tensor.dim() and len(tensor) else tensor
    ),
}


class Box(Shareable):
    """Holds a tensor."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


def through_a_file(
    write: Callable[[Path, NDArray[Any]], object], read: Callable[[Path], NDArray[Any]]
) -> Callable[[torch.Tensor, Path], torch.Tensor]:
    """Return a function that sends a tensor through a NumPy file."""

    def send(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
        write(folder / "a.npy", tensor.numpy())
        return torch.from_numpy(read(folder / "a.npy").copy(order="K"))

    return send


def tensor_of_torch(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    torch.save(tensor, folder / "a.pt")
    return torch.from_numpy(open_array(folder / "a.pt", "torch", "key"))


def frame(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    sent = Frame(*encode_tensors({"x": tensor}))
    memory = np.full(sent.size, 255, np.uint8)
    sent.write(memory)
    return decode_tensors(*read_frame(memory)[:2])[1]["x"]


def answer(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    arrow = pytest.importorskip("pyarrow")
    sent = arrow.Table.from_batches([to_batch("made", tensor)])
    with arrow.OSFile(str(folder / "sent"), "wb") as file, arrow.ipc.new_stream(file, sent.schema) as writer:
        writer.write(sent)
    return tensor_in(from_batch(arrow.ipc.open_stream(folder.joinpath("sent").read_bytes()).read_next_batch())[1])


def pickled(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    box = Box(tensor)  # kept alive until it arrives
    return tensor_in(pickle.loads(pickle.dumps(box)).values)


def shared(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    block = SharedBlock.create([tensor])
    return SharedBlock.open(block.handle).tensors[0]


def place_in_a_file(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    np.save(folder / "a.npy", tensor.numpy())
    (place,) = find_places([as_tensor("a", np.load(folder / "a.npy", mmap_mode="c"))])
    assert isinstance(place, FilePlace)
    return place.open()


def graph_file(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    edges = len(tensor)
    indptr = torch.tensor([0, edges])
    graph = fused_csc_sampling_graph(indptr, torch.zeros(edges, dtype=torch.int64), edge_attributes={"w": tensor})
    graph.save(folder / "graph")
    return tensor_in(map_fields(folder / "graph")["edge_attributes"]["w"])


def part(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    np.save(folder / "a.npy", to_numpy(tensor.contiguous()))
    name = str(tensor.dtype).removeprefix("torch.")
    return map_entry(folder, ArrayEntry("a.npy", "edge_attributes", ("a",), name, tuple(tensor.shape)))


Send = Callable[[torch.Tensor, Path], torch.Tensor]
OF_NUMPY: dict[str, Send] = {
    "npy file in memory": through_a_file(np.save, read_npy),
    "npy file, mapped": through_a_file(np.save, lambda path: read_npy(path, mapped=True)),
    "npy file, mapped to read": through_a_file(np.save, map_npy),
    "npy file in parts": through_a_file(write_array, np.load),
    "npy file at pages": through_a_file(numpy_save_aligned, np.load),
    "array of torch.save": through_a_file(lambda path, array: torch.save(array, path), read_array),
    "tensor of torch.save": tensor_of_torch,
    "place in a file": place_in_a_file,
}
FORMATS: dict[str, Send] = {
    **OF_NUMPY,
    "message of tensors": frame,
    "message between processes": lambda tensor, folder: decode(*encode(tensor)),
    "answer between machines": answer,
    "work for an executor": lambda tensor, folder: pickle.loads(dump(tensor)),
    "pickle of what is shared": pickled,
    "shared memory": shared,
    "file of a graph": graph_file,
    "file of a part": part,
}
OF_ROWS = {"npy file in parts", "file of a graph"}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
@pytest.mark.parametrize("name", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(dtype=st.sampled_from(DTYPES + OTHERS), shape=st.sampled_from(SHAPES), layout=st.sampled_from(sorted(LAYOUTS)))
def test_every_dtype_shape_and_layout_comes_back(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str, tmp_path: Path
) -> None:
    size = torch.empty(shape, dtype=dtype).nbytes
    bits = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(size), dtype=torch.uint8)
    value = LAYOUTS[layout](bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype))
    assume(name not in OF_NUMPY or dtype in DTYPES)
    assume(name != "place in a file" or value.numel())
    assume(name not in OF_ROWS or value.dim())
    assume(name != "file of a part" or dtype in (*DTYPES, torch.bfloat16))
    again = FORMATS[name](value, tmp_path)
    assert_same(again, value)


@pytest.mark.since_torch("2.6")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
def test_arrays_of_any_byte_order_are_read_and_can_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    readers: dict[str, tuple[Callable[[Path, Any], object], Callable[[Path], NDArray[Any]]]] = {
        "in memory": (np.save, read_npy),
        "mapped": (np.save, lambda path: read_npy(path, mapped=True)),
        "of torch.save": (lambda path, array: torch.save(array, path), read_array),
    }
    for name, (write, read) in readers.items():
        for kind, shape, order in (
            (">i4", (5, 3), "F"),
            (">f8", (2, 3, 4), "C"),
            ("<i8", (0, 2), "C"),
            ("|b1", (), "F"),
        ):
            array = np.arange(int(np.prod(shape))).reshape(shape).astype(kind, order=order)  # type: ignore[call-overload]
            write(path, array)
            found = read(path)
            assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("="), (name, kind)
            assert np.array_equal(found, array), (name, kind)
            assert name == "of torch.save" or found.strides == np.load(path).strides, (name, kind)
            found[...] = 1


TENSORS = {"ids": torch.arange(5), "none": torch.empty(0, 7), "flag": torch.tensor(True)}


def written(frame: Frame) -> Bytes:
    memory: Bytes = np.full(frame.size, 255, np.uint8)
    frame.write(memory)
    return memory


@given(st.lists(st.tuples(st.binary(max_size=200), st.lists(st.binary(max_size=200), max_size=6)), max_size=3))
def test_frames_in_a_row_come_out_as_they_went_in(messages: list[tuple[bytes, list[bytes]]]) -> None:
    frames = [Frame(header, [np.frombuffer(buffer, np.uint8) for buffer in buffers]) for header, buffers in messages]
    memory: Bytes = np.concatenate([np.empty(0, np.uint8), *map(written, frames)])
    file = io.BytesIO()
    for frame in frames:
        assert all(start % ALIGNMENT == 0 for start in frame.starts)
        file.writelines(frame.pieces())
    assert len(file.getvalue()) == memory.size
    for rest in (memory, np.frombuffer(file.getvalue(), np.uint8)):
        for header, buffers in messages:
            found, views, size = read_frame(rest)
            assert (found, [view.tobytes() for view in views]) == (header, buffers)
            assert all(np.shares_memory(view, rest) for view in views if view.size)
            rest = rest[size:]
        assert not rest.size


def test_every_prefix_of_a_frame_is_refused() -> None:
    memory = written(Frame(*encode_tensors(TENSORS)))
    assert_same(decode_tensors(*read_frame(memory)[:2])[1], TENSORS)
    for end in range(memory.size):
        with pytest.raises(ValueError, match="a frame"):
            read_frame(memory[:end])


def test_a_head_may_be_limited() -> None:
    memory = written(Frame(b"header", [as_bytes(torch.arange(9))]))
    assert read_frame(memory, largest_head=30)[0] == b"header"
    with pytest.raises(ValueError, match=r"a frame claims a head of 30 bytes, but .* its head may have 29"):
        read_frame(memory, largest_head=29)


@given(st.data())
def test_any_change_of_a_message_is_refused_or_is_a_message(data: st.DataObject) -> None:
    content = written(Frame(*encode_tensors(TENSORS, head={"a": [1]})))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 160))] = data.draw(st.sampled_from(list(b'0123456789-"[]{},:. \x00\xff')))
    try:
        _, tensors = decode_tensors(*read_frame(content)[:2])
    except ValueError:
        return
    assert all(isinstance(tensor.sum().item(), (bool, int, float, complex)) for tensor in tensors.values())


WRONG_ROWS: dict[str, list[Any]] = {
    "it describes no tensors": [5, None, [[]], [["x", "int64"]], [["x", "qint8", [1]]], [["x", "device", [1]]],
                                [["x", ["int64"], [1]]], [[1, "int64", [1]]], [["x", "int64", 3]],
                                [["x", "int64", [-1]]], [["x", "int64", [True]]], [["x", "int64", [1.0]]]],
    "'x' has a shape that no tensor has": [[["x", "int64", [1] * 65]], [["x", "int64", [1 << 62, 1 << 62]]],
                                           [["x", "int64", [0, 1 << 60]]]],
    "two tensors of the same name": [[["x", "int64", [1]], ["x", "int8", [1]]]],
}  # fmt: skip
WRONG_HEADERS = [b"", b"{", b"\xff", b"[1]", b"5", b"[" * 100_000, b'[null, [["x", "no", [1]]]]']
WRONG_SIZES = [(1 << 63, 0), (0, 1 << 61), ((1 << 64) - 1, (1 << 64) - 1), (0, 1, 1 << 63)]


def read_sizes(sizes: tuple[int, ...]) -> object:
    """Read a frame that claims the given sizes of its parts."""
    return read_frame(np.frombuffer(struct.pack(f"<{len(sizes)}Q", *sizes).ljust(128, b"\0"), np.uint8))


def decode_sizes(sizes: list[int]) -> object:
    """Decode a header with a single number, with buffers of the given sizes."""
    return decode_tensors(b'[null, [["x", "int64", [1]]]]', [np.zeros(size, np.uint8) for size in sizes])


def test_what_is_no_message_of_tensors_is_refused() -> None:
    a_list: Any = [TENSORS]
    two, swapped = b'[null, [["x", "int64", [1]], ["y", "int64", [2]]]]', [np.zeros(size, np.uint8) for size in (16, 8)]
    table: list[Refusal] = [
        (lambda: decode_tensors(two, swapped), ValueError, "which don't match the header"),
        (lambda: describe_tensors(a_list), TypeError, "must be a dict of strings to tensors, but is a list"),
        (lambda: encode_tensors({"a": torch.eye(2).to_sparse()}), TypeError,
         r"'a' is torch\.sparse_coo; send its parts"),
    ]  # fmt: skip
    wrong: list[Any] = [{1: torch.ones(1)}, {"a": [1]}, {"a": None}]
    calls: list[tuple[Callable[[Any], object], list[Any], type[Exception], str]] = [
        (encode_tensors, wrong, TypeError, "must be a dict of strings to tensors, but has"),
        *((read_specs, rows, ValueError, words) for words, rows in WRONG_ROWS.items()),
        (
            lambda header: decode_tensors(header, []),
            WRONG_HEADERS,
            ValueError,
            "the header of a message .* can't be read",
        ),
        (decode_sizes, [[], [16], [8, 8], [9], [0]], ValueError, "which don't match the header"),
        (read_sizes, WRONG_SIZES, ValueError, "a frame claims"),
    ]
    for call, values, kind, words in calls:
        table += [(lambda call=call, value=value: call(value), kind, words) for value in values]  # type: ignore[misc]
    check_refused(table)
