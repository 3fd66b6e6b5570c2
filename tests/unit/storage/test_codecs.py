"""Tensors are bit-identical after encoding and decoding in each format, and messages are checked."""

import io
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.distributed import open_part, write_partition
from graphfeed.distributed.wire import from_batch, to_batch
from graphfeed.loader.transport import decode, encode
from graphfeed.ops.memory import Bytes
from graphfeed.storage import fused_csc_sampling_graph
from graphfeed.storage.memory import Frame, Shareable, SharedBlock, decode_tensors, encode_tensors, read_frame
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16,
]  # fmt: skip
OTHERS = [torch.float8_e4m3fn, torch.complex32]
SHAPES = [(), (0,), (3,), (2, 0), (4, 5), (2, 3, 4), (40, 5, 11), (70_000, 1)]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda tensor: tensor,
    "turned": lambda tensor: tensor.movedim(0, -1),
    "every other": lambda tensor: tensor[..., ::2],
    "a part": lambda tensor: tensor[1:],
    "one many times": lambda tensor: tensor[:1].expand(3, *tensor.shape[1:]) if len(tensor) else tensor,
}


class Box(Shareable):
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


def written(frame: Frame) -> Bytes:
    memory: Bytes = np.full(frame.size, 255, np.uint8)
    frame.write(memory)
    return memory


def message(tensor: torch.Tensor, folder: Path) -> Any:
    return decode_tensors(*read_frame(written(Frame(*encode_tensors({"x": tensor}))))[:2])[1]["x"]


def pickled(tensor: torch.Tensor, folder: Path) -> Any:
    box = Box(tensor)  # kept alive until it arrives
    return pickle.loads(pickle.dumps(box)).values


def answer(tensor: torch.Tensor, folder: Path) -> Any:
    arrow = pytest.importorskip("pyarrow")
    sent, file = arrow.Table.from_batches([to_batch("made", tensor)]), arrow.BufferOutputStream()
    with arrow.ipc.new_stream(file, sent.schema) as writer:
        writer.write(sent)
    return from_batch(arrow.ipc.open_stream(file.getvalue()).read_next_batch())[1]


def shared(tensor: torch.Tensor, folder: Path) -> Any:
    block = SharedBlock.create([tensor])
    return SharedBlock.open(block.handle).tensors[0]


def graph_of(tensor: torch.Tensor) -> gf.FusedCSCSamplingGraph:
    none = torch.zeros(len(tensor), dtype=torch.int64)
    return fused_csc_sampling_graph(torch.tensor([0, len(tensor)]), none, edge_attributes={"w": tensor})


def graph_file(tensor: torch.Tensor, folder: Path) -> Any:
    graph_of(tensor).save(folder / "graph")
    return gf.load_graph(folder / "graph").edge_attribute("w")


FORMATS: dict[str, Callable[[torch.Tensor, Path], Any]] = {
    "message of tensors": message,
    "message between processes": lambda tensor, folder: decode(*encode(tensor)),
    "answer between machines": answer,
    "pickle of what is shared": pickled,
    "shared memory": shared,
    "file of a graph": graph_file,
}


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
    value = bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    value = LAYOUTS[layout](value) if shape else value
    assume(name != "file of a graph" or value.dim())
    assert_same(FORMATS[name](value, tmp_path), value)


def test_every_dtype_comes_back_from_a_file_of_a_part(tmp_path: Path) -> None:
    for dtype in DTYPES:
        rows, folder = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype).T, tmp_path / str(dtype)
        write_partition(folder, graph_of(rows), torch.tensor([0]), 1)
        assert_same(open_part(folder, 0).graph.columns.edge_attribute("w"), rows)


TENSORS = {"ids": torch.arange(5), "none": torch.empty(0, 7), "flag": torch.tensor(True)}


@given(st.lists(st.tuples(st.binary(max_size=200), st.lists(st.binary(max_size=200), max_size=6)), max_size=3))
def test_frames_in_a_row_come_out_as_they_went_in(messages: list[tuple[bytes, list[bytes]]]) -> None:
    frames = [Frame(header, [np.frombuffer(buffer, np.uint8) for buffer in buffers]) for header, buffers in messages]
    memory: Bytes = np.concatenate([np.empty(0, np.uint8), *map(written, frames)])
    file = io.BytesIO()
    for frame in frames:
        file.writelines(frame.pieces())
    for rest in (memory, np.frombuffer(file.getvalue(), np.uint8)):
        for header, buffers in messages:
            found, views, size = read_frame(rest)
            assert (found, [view.tobytes() for view in views]) == (header, buffers)
            rest = rest[size:]
        assert not rest.size


def decoded(content: Bytes, **options: Any) -> Any:
    return decode_tensors(*read_frame(content, **options)[:2])[1]


@given(st.data())
def test_any_cut_of_a_message_is_refused_and_any_change_is_refused_or_a_message(data: st.DataObject) -> None:
    content = written(Frame(*encode_tensors(TENSORS, head={"a": [1]})))
    assert_same(decoded(content, largest_head=200), TENSORS)
    for limits, end in (({"largest_head": 30}, None), ({}, data.draw(st.integers(0, content.size - 1)))):
        with pytest.raises(ValueError, match="a frame"):
            decoded(content[:end], **limits)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 160))] = data.draw(st.sampled_from(list(b'0123456789-"[]{},:. \x00\xff')))
    try:
        tensors = decoded(content)
    except ValueError:
        return
    assert all(isinstance(tensor.sum().item(), (bool, int, float, complex)) for tensor in tensors.values())


WRONG_ROWS: dict[str, list[str]] = {
    "it describes no tensors": [
        "5", "null", "[[]]", '[["x", "int64"]]', '[["x", "qint8", [1]]]', '[["x", "device", [1]]]',
        '[[1, "int64", []]]',
        '[["x", ["int64"], [1]]]', '[["x", "int64", 3]]', '[["x", "int64", [-1]]]', '[["x", "int64", [true]]]',
    ],
    "'x' has a shape that no tensor has": [
        f'[["x", "int64", {shape}]]' for shape in ([1] * 65, [1 << 62, 1 << 62], [0, 1 << 60])
    ],
    "two tensors of the same name": ['[["x", "int64", [1]], ["x", "int8", [1]]]'],
    "which don't match the header": ['[["x", "int64", [1]]]', '[["x", "int8", [8]], ["y", "int64", [2]]]'],
    "the header of a message .* can't be read": ["", "{", "\xff", "[" * 100_000],
}  # fmt: skip
WRONG_SIZES = [(1 << 63, 0), (0, 1 << 61), ((1 << 64) - 1, (1 << 64) - 1), (0, 1, 1 << 63)]


def test_what_is_no_message_of_tensors_is_refused() -> None:
    wrong: list[Any] = [[TENSORS], {1: torch.ones(1)}, {"a": [1]}, {"a": None}]
    table: list[Refusal] = [
        (lambda: encode_tensors({"a": torch.eye(2).to_sparse()}), TypeError, r"'a' is torch\.sparse_coo; send its"),
        *((partial(encode_tensors, value), TypeError, "must be a dict of strings to tensors, but ") for value in wrong),
    ]
    for words, rows in WRONG_ROWS.items():
        for row in rows:
            header = f"[null, {row}]".encode("latin-1")
            table.append((partial(decode_tensors, header, [np.zeros(16, np.uint8)]), ValueError, words))
    for sizes in WRONG_SIZES:
        packed = struct.pack(f"<{len(sizes)}Q", *sizes).ljust(128, b"\0")
        table.append((partial(read_frame, np.frombuffer(packed, np.uint8)), ValueError, "a frame claims"))
    check_refused(table)
