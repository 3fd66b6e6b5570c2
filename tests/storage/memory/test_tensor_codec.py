"""Messages of tensors: frames in a row, names, and bytes from outside, which are checked."""

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.memory.buffers import as_bytes
from graphfeed.ops.memory.shared_memory import ALIGNMENT, Bytes
from graphfeed.storage.memory.tensor_codec import (
    Frame,
    decode_tensors,
    describe_tensors,
    encode_tensors,
    read_frame,
    read_specs,
)
from tests.digests import assert_same
from tests.refusals import Refusal, check_refused

TENSORS = {"ids": torch.arange(5), "none": torch.empty(0, 7), "flag": torch.tensor(True)}


def written(frame: Frame) -> Bytes:
    memory: Bytes = np.full(frame.size, 255, np.uint8)
    frame.write(memory)
    return memory


def test_values_that_do_not_lie_together_come_back() -> None:
    base = torch.arange(60).reshape(3, 4, 5)
    tensors = {"a": base.transpose(0, 2), "ü": base[:, 1], "conj": torch.tensor([1j]).conj()}
    assert_same(decode_tensors(*encode_tensors(tensors))[1], {name: value.clone() for name, value in tensors.items()})


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
    with pytest.raises(ValueError, match=r"a frame says that its head has 30 bytes, but .* its head may have 29"):
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
    """Read a frame that says of its parts that they are so large."""
    return read_frame(np.frombuffer(struct.pack(f"<{len(sizes)}Q", *sizes).ljust(128, b"\0"), np.uint8))


def decode_sizes(sizes: list[int]) -> object:
    """Decode a header that names one number, with buffers of some sizes."""
    return decode_tensors(b'[null, [["x", "int64", [1]]]]', [np.zeros(size, np.uint8) for size in sizes])


def test_what_is_no_message_of_tensors_is_refused() -> None:
    a_list: Any = [TENSORS]
    two, swapped = b'[null, [["x", "int64", [1]], ["y", "int64", [2]]]]', [np.zeros(size, np.uint8) for size in (16, 8)]
    table: list[Refusal] = [
        (lambda: decode_tensors(two, swapped), ValueError, "which are not the tensors that were named"),
        (lambda: describe_tensors(a_list), TypeError, "must be a dict of texts to tensors, but is a list"),
        (
            lambda: encode_tensors({"a": torch.eye(2).to_sparse()}),
            TypeError,
            r"'a' is torch\.sparse_coo; send its parts",
        ),
    ]
    wrong: list[Any] = [{1: torch.ones(1)}, {"a": [1]}, {"a": None}]
    calls: list[tuple[Callable[[Any], object], list[Any], type[Exception], str]] = [
        (encode_tensors, wrong, TypeError, "must be a dict of texts to tensors, but has"),
        *((read_specs, rows, ValueError, words) for words, rows in WRONG_ROWS.items()),
        (
            lambda header: decode_tensors(header, []),
            WRONG_HEADERS,
            ValueError,
            "the header of a message .* can't be read",
        ),
        (decode_sizes, [[], [16], [8, 8], [9], [0]], ValueError, "which are not the tensors that were named"),
        (read_sizes, WRONG_SIZES, ValueError, "a frame says that"),
    ]
    for call, values, kind, words in calls:
        table += [(lambda call=call, value=value: call(value), kind, words) for value in values]  # type: ignore[misc]
    check_refused(table)
