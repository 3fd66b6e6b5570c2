import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport.arena import SLOTS, Arena, ArenaBlock
from graphfeed.loader.transport.pickling import decode, encode
from graphfeed.loader.transport.zero_copy import SMALL_BYTES, ZeroCopyReceiver, ZeroCopySender, open_zero_copy
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.buffers import BufferPool
from graphfeed.ops.memory.shared_memory import ALIGNMENT
from tests.at_once import by_two_threads
from tests.digests import assert_same
from tests.garbage import AtItsEnd, ends

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SIZE = 1 << 20
LARGE = 50_000
FULL = 2 * SIZE
ARENA = 1 << 16


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


def test_what_was_kept_is_sent_in_place_once_it_is_kept_no_more(sides: Sides) -> None:
    kept = [sides.make(LARGE)]
    sides.send(list(kept))
    assert sides.send(kept)[0].tolist() == expected(LARGE).tolist()
    assert sides.copied == []


def test_a_cycle_keeps_what_it_holds_until_it_is_collected(sides: Sides) -> None:
    cycle: list[Any] = [sides.make(LARGE)]
    cycle.append(cycle)
    values = [cycle[0]]
    del cycle
    gc.disable()
    try:
        sides.send(values)
    finally:
        gc.enable()
    assert sides.copied == [LARGE]
    gc.collect()
    assert sides.is_free()


def test_blocks_begin_at_a_cache_line(sides: Sides) -> None:
    held = [sides.make(buffers.SMALL_BYTES + 100 * number) for number in range(5)]
    assert [tensor.data_ptr() % 64 for tensor in held] == [0] * 5
    assert [tensor.data_ptr() % 64 for tensor in sides.send(held)] == [0] * 5


def test_where_the_receiver_keeps_all_there_is_the_sender_goes_on_without(sides: Sides) -> None:
    kept = []
    for number in range(40):
        kept.extend(sides.send([sides.make(LARGE, number)]))
    assert sides.copied == [LARGE]
    assert all(torch.equal(value, expected(LARGE, number)) for number, value in enumerate(kept))
    kept.clear()
    sides.send([sides.make(LARGE)])
    assert sides.copied == []


def test_memory_is_used_again(sides: Sides) -> None:
    places = {sides.send([sides.make(LARGE)])[0].data_ptr() for _ in range(20)}
    assert len(places) == 1


def take(arena: Arena, size: int) -> ArenaBlock:
    block = arena.allocate(size)
    assert block is not None
    return block


@given(st.lists(st.tuples(st.integers(0, ARENA // 3), st.integers(0, 5)), max_size=60))
def test_blocks_are_aligned_and_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Each step allocates a block and frees an older one."""
    arena = Arena(ARENA)
    held: list[ArenaBlock] = []
    for size, age in steps:
        block = arena.allocate(size)
        if block is not None:
            assert block.start % ALIGNMENT == 0
            assert SLOTS <= block.start < block.stop <= arena.size
            assert block.stop - block.start >= size
            assert all(block.stop <= other.start or other.stop <= block.start for other in held)
            assert block.slot not in {other.slot for other in held}
            held.append(block)
        if age < len(held):
            arena.marks[held.pop(age).slot] = 1
    for block in held:
        arena.marks[block.slot] = 1
    assert take(arena, ARENA - SLOTS).start == SLOTS, "what is free is one block again"


def test_a_full_arena_and_one_without_slots_say_so_and_untouched_memory_takes_no_room() -> None:
    arena = Arena(ARENA)
    assert arena.allocate(ARENA) is None
    take(arena, ARENA - SLOTS)
    assert arena.allocate(1) is None
    many = Arena(SLOTS * (ALIGNMENT + 2))
    assert [many.allocate(1) is None for _ in range(SLOTS + 1)] == [False] * SLOTS + [True]
    large = Arena(1 << 36)
    take(large, 10)
    assert os.fstat(large.file.descriptor).st_blocks <= 8


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


def test_two_threads_that_take_memory_at_once_both_get_some(sides: Sides) -> None:
    taken = by_two_threads(lambda: sides.sender.take(LARGE), Arena, "allocate", seconds=0.2)
    assert [len(memory) for memory in taken] == [LARGE] * 2
    assert not np.shares_memory(*taken)
    taken.clear()
    assert sides.is_free()


def test_a_finalizer_that_takes_memory_while_memory_is_taken_goes_on_without(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    allocate = Arena.allocate

    def allocate_and_collect(arena: Arena, size: int) -> Any:
        gc.collect()
        return allocate(arena, size)

    def take() -> None:
        taken.append(sides.sender.take(LARGE))

    def take_twice() -> None:
        AtItsEnd(take)
        take()

    with monkeypatch.context() as patched:
        patched.setattr(Arena, "allocate", allocate_and_collect)
        assert ends(take_twice)
    assert [memory is None for memory in taken] == [True, False]
    AtItsEnd(take)
    gc.collect()
    assert taken.pop() is not None
    taken.clear()
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


def serve(sender: ZeroCopySender, outbox: Any) -> None:
    pool = BufferPool()
    pool.source = sender.take
    array = pool.empty(LARGE, np.uint8)
    array[:] = 3
    header, encoded = encode(array)
    del array
    header, copied, _ = sender.pack(header, encoded)
    outbox.send((header, len(copied)))
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=[pytest.mark.slow, pytest.mark.thorough])])
def test_what_was_received_outlives_its_sender(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    sender, receiver = open_zero_copy(SIZE)
    inbox, outbox = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(sender, outbox))
    process.start()
    outbox.close()
    sender.close()
    header, copied = inbox.recv()
    process.join()
    inbox.close()
    arrived = decode(*receiver.unpack(header, []))
    assert (copied, process.exitcode) == (0, -9)
    process.close()
    assert np.array_equal(arrived, np.full(LARGE, 3))


def test_a_header_without_places_stays_as_it_is() -> None:
    sender, _ = open_zero_copy(SIZE)
    header, copied, _ = sender.pack(b"text", [np.zeros(3, dtype=np.uint8)])
    assert ZeroCopyReceiver(None).unpack(header, copied)[0] == b"text"
    sender.close()
