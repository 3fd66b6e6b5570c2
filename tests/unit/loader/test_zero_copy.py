import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport import decode, encode
from graphfeed.loader.transport.zero_copy import SMALL_BYTES, open_zero_copy
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.buffers import BufferPool
from tests.kinds.digests import assert_same

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZE = 1 << 20
LARGE = 50_000
FULL = 2 * SIZE


class Sides:
    """Both sides in one process, and the buffers that were copied."""

    def __init__(self, size: int = SIZE) -> None:
        self.sender, self.receiver = open_zero_copy(size)
        self.pool = BufferPool()
        self.pool.source = self.sender.take
        self.copied: list[int] = []

    def make(self, size: int, number: int = 0) -> torch.Tensor:
        """Return a tensor in the memory of an op's result."""
        tensor = torch.from_numpy(self.pool.empty(size, np.uint8))
        tensor[:] = torch.arange(number, number + size)
        return tensor

    def send(self, values: list[Any]) -> Any:
        """Return the received values, and clear the list."""
        encoded = encode(values)
        values.clear()
        header, copied, kept = self.sender.pack(*encoded)
        arrived = [np.array(part) for part in copied]
        self.copied = [part.size for part in copied]
        del copied, kept
        return decode(*self.receiver.unpack(header, arrived))

    def is_free(self) -> bool:
        """Return whether no block is in use."""
        arena = self.sender.arena
        assert arena is not None
        arena.reclaim()
        return not arena.in_use


@pytest.fixture
def sides() -> Iterator[Sides]:
    sides = Sides()
    yield sides
    sides.sender.close()


def expected(size: int, number: int = 0) -> torch.Tensor:
    return torch.arange(number, number + size).to(torch.uint8)


def held_by_nobody(sides: Sides) -> tuple[list[Any], Any]:
    return [sides.make(LARGE, 5)], None


def kept_by_the_sender(sides: Sides) -> tuple[list[Any], Any]:
    tensor = sides.make(LARGE)
    return [tensor], tensor


def kept_in_part(sides: Sides) -> tuple[list[Any], Any]:
    tensor = sides.make(LARGE)
    return [tensor[:20_000], tensor[20_000:], sides.make(LARGE)], tensor.numpy()[3:5]


def parts_that_overlap(sides: Sides) -> tuple[list[Any], Any]:
    tensor = sides.make(LARGE)
    return [tensor[:20_000], tensor[:30_000], tensor[30_000:], tensor[:30_000]], None


def a_small_part(sides: Sides) -> tuple[list[Any], Any]:
    return [sides.make(LARGE)[:10]], None


def elsewhere_or_empty(sides: Sides) -> tuple[list[Any], Any]:
    return [torch.arange(9), sides.make(0), sides.make(LARGE)[5:5], sides.make(LARGE).view(-1, 4)], None


COPIED: dict[Callable[[Sides], tuple[list[Any], Any]], list[int]] = {
    held_by_nobody: [],
    kept_by_the_sender: [LARGE],
    kept_in_part: [20_000, 30_000],
    parts_that_overlap: [20_000, 30_000],
    a_small_part: [10],
    elsewhere_or_empty: [0, 0, 72],
}
"""Tensors to send, and the sizes that are copied."""


def test_what_the_sender_keeps_what_is_small_and_what_overlaps_is_copied_and_nothing_else(sides: Sides) -> None:
    gc.disable()
    try:
        for make, copied in COPIED.items():
            values, kept = make(sides)
            sent = [value.clone() for value in values]
            arrived = sides.send(values)
            assert sorted(sides.copied) == copied, make
            assert_same(arrived, sent)
            assert sides.is_free() == (make is a_small_part), make
            del arrived, kept
            assert sides.is_free(), "no garbage collection is needed"
    finally:
        gc.enable()


@st.composite
def messages(draw: st.DrawFn) -> list[Any]:
    """Steps: the sizes of blocks, slices of them, which ones the sender keeps, and for how long the receiver does."""
    size = st.sampled_from([0, 10, SMALL_BYTES, buffers.SMALL_BYTES, LARGE, 5 * LARGE, FULL])
    part = st.tuples(st.integers(0, 3), st.integers(0, LARGE), st.integers(0, LARGE))
    step = st.tuples(
        st.lists(size, max_size=4), st.lists(part, max_size=6), st.sets(st.integers(0, 3)), st.integers(0, 4)
    )
    return draw(st.lists(step, max_size=6))


def write(pairs: list[tuple[torch.Tensor, torch.Tensor]], number: int) -> None:
    """Check the values of tensors, then change them."""
    for value, right in pairs:
        assert torch.equal(value, right)
        value += number
        right += number


@pytest.mark.slow
@given(messages())
def test_neither_side_sees_what_the_other_one_writes(steps: list[Any]) -> None:
    """For any side that keeps results, and for overlapping parts of a message."""
    sides = Sides()
    here: list[tuple[torch.Tensor, torch.Tensor]] = []
    there: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    for number, (sizes, parts, keeps, age) in enumerate(steps):
        made = [sides.make(size, number) for size in sizes]
        values = [*made, *(made[which][start : start + length] for which, start, length in parts if which < len(made))]
        truth = [value.clone() for value in values]
        here.extend((made[which], made[which].clone()) for which in keeps if which < len(made))
        made.clear()
        there.append(list(zip(sides.send(values), truth, strict=True)))
        del there[: max(0, len(there) - 1 - age)]
        for pairs in there:
            write(pairs, 1)
        write(here, 7)
    pairs = []
    here.clear()
    there.clear()
    sides.pool.empty(LARGE, np.uint8)
    assert sides.is_free()


def test_memory_is_used_again(sides: Sides) -> None:
    places = {sides.send([sides.make(LARGE)])[0].data_ptr() for _ in range(20)}
    assert len(places) == 1


def test_without_address_space_everything_is_copied() -> None:
    sides = Sides(1 << 62)
    (arrived,) = sides.send([sides.make(LARGE)])
    assert sides.copied == [LARGE]
    assert torch.equal(arrived, expected(LARGE))


def test_what_is_left_of_a_message_that_is_dropped_comes_back(sides: Sides) -> None:
    encoded = encode([sides.make(LARGE), sides.make(LARGE)])
    header, copied, _ = sides.sender.pack(*encoded)
    sides.receiver.unpack(header, copied)
    del copied, encoded
    assert sides.is_free()


def test_a_forked_child_gives_nothing_back_and_writes_elsewhere(sides: Sides) -> None:
    kept = [*sides.send([sides.make(LARGE)]), sides.make(LARGE)]
    if (pid := os.fork()) == 0:
        kept.clear()
        os._exit(0 if sides.sender.take(LARGE) is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    for _ in range(2):
        assert not sides.is_free()
        assert torch.equal(kept.pop(), expected(LARGE))
    assert sides.is_free()
    assert sides.sender.take(LARGE) is not None
