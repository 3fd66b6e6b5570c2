import collections
import gc
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.loader.transport.mailbox import open_mailbox
from graphfeed.loader.transport.pickling import decode, encode
from tests.digests import assert_same


@dataclass
class Record:
    name: str
    parts: Any


def through(value: Any) -> Any:
    """Send a value through a mailbox of this process."""
    outbox, inbox = open_mailbox(1 << 20)
    try:
        outbox.send(*encode(value))
        return decode(*inbox.receive(10))
    finally:
        outbox.close()
        inbox.close()


def test_other_kinds_of_tensors_travel_as_torch_has_them_travel() -> None:
    sparse = torch.eye(3).to_sparse()
    assert through(sparse).to_dense().equal(torch.eye(3))
    parameter = torch.nn.Parameter(torch.ones(2))
    again = through(parameter)
    assert type(again) is torch.nn.Parameter
    assert again.tolist() == [1, 1]
    assert through(torch.empty(3, device="meta")).device.type == "meta"


ARRAYS: list[Any] = [
    np.arange(12).reshape(3, 4).T,
    np.array(3.5),
    np.zeros((0, 2), np.int16),
    np.array(["2024-01-01"], dtype="datetime64[s]"),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["text", None], dtype=object),
    np.array([b"ab", b"c"]),
    np.frombuffer(b"read-only", dtype=np.uint8),
]


def test_arrays_come_back() -> None:
    for array in ARRAYS:
        again = through(array)
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert np.array_equal(again, array), array.dtype


def test_the_rest_of_python_comes_back() -> None:
    value = Record("a", {"x": [torch.ones(2), (None, 1 << 80)], 3: collections.Counter("aab"), "b": bytearray(b"z")})
    again = through(value)
    assert_same(again.parts["x"], value.parts["x"])
    assert (again.name, again.parts[3], again.parts["b"]) == ("a", collections.Counter("aab"), b"z")


def test_one_tensor_in_two_places_stays_one() -> None:
    tensor = torch.ones(3)
    again = through([tensor, tensor])
    assert again[0] is again[1]


def test_the_pickle_holds_no_bytes_of_tensors() -> None:
    header, buffers = encode({"a": torch.zeros(10_000), "b": np.zeros(10_000), "c": torch.zeros(100, 100).T})
    assert len(header) < 400
    assert [buffer.size for buffer in buffers] == [40_000, 80_000, 40_000]


def test_received_tensors_may_be_written() -> None:
    again = through([torch.zeros(3), torch.zeros(10_000), torch.zeros(1_000_000)])
    for tensor in again:
        tensor += 1
        assert bool((tensor == 1).all())


def test_what_was_encoded_is_dropped_at_once() -> None:
    tensor = torch.zeros(3)
    alive = weakref.ref(tensor)
    gc.disable()
    try:
        encoded = encode([tensor])
        del encoded, tensor
        assert alive() is None, "no garbage collection is needed"
    finally:
        gc.enable()


def test_a_leaf_still_requires_gradients() -> None:
    for shape in [(3,), (0,), (2, 3)]:
        given = torch.rand(shape, requires_grad=True)
        header, buffers = encode(given)
        again = decode(header, [np.frombuffer(part, np.uint8).copy() for part in buffers])
        assert again.requires_grad, shape
        assert again.is_leaf
        assert_same(again.detach(), given.detach())


def test_what_was_computed_with_gradients_is_refused_and_not_cut_off() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\) was computed from others that require gradients.*send .detach"):
        encode({"labels": torch.ones(3, requires_grad=True) * 2})
