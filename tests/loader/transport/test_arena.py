import gc
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport.arena import SLOTS, Arena, ArenaReader, Block
from graphfeed.ops.memory.shared_memory import ALIGNMENT

SIZE = 1 << 16


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(SIZE)
    yield arena
    arena.file.close()


def take(arena: Arena, size: int) -> Block:
    block = arena.allocate(size)
    assert block is not None
    return block


@given(st.lists(st.tuples(st.integers(0, SIZE // 3), st.integers(0, 5)), max_size=60))
def test_blocks_are_aligned_and_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Each step takes a block and gives back an older one."""
    arena = Arena(SIZE)
    held: list[Block] = []
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
    arena.reclaim()
    assert (arena.starts, arena.stops, arena.in_use) == ([SLOTS], [arena.size], {})


def test_the_lowest_free_memory_is_used_again(arena: Arena) -> None:
    first, second = take(arena, 1000), take(arena, 1000)
    assert first.start < second.start
    arena.marks[first.slot] = 1
    assert take(arena, 500).start == first.start


def test_a_full_arena_and_one_without_slots_say_so(arena: Arena) -> None:
    assert arena.allocate(SIZE) is None
    take(arena, SIZE - SLOTS)
    assert arena.allocate(1) is None
    many = Arena(SLOTS * (ALIGNMENT + 2))
    assert [many.allocate(1) is None for _ in range(SLOTS + 1)] == [False] * SLOTS + [True]


def test_a_reader_sees_the_bytes_and_its_last_view_gives_them_back(arena: Arena) -> None:
    block = take(arena, 100)
    arena.memory[block.start : block.start + 100] = np.arange(100)
    reader = ArenaReader(arena.file.descriptor, arena.size)
    leased = reader.lease(block.slot, block.start, 100)
    part = leased[10:20].view(np.int16)
    del leased, reader
    arena.reclaim()
    assert list(arena.in_use) == [block.slot]
    assert part.view(np.uint8).tolist() == list(range(10, 20))
    gc.disable()
    try:
        del part
        arena.reclaim()
        assert not arena.in_use, "no garbage collection is needed"
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_the_reader_gives_nothing_back(arena: Arena) -> None:
    block = take(arena, 100)
    leased = ArenaReader(arena.file.descriptor, arena.size).lease(block.slot, block.start, 100)
    child = os.fork()
    if child == 0:
        del leased
        os._exit(0)
    os.waitpid(child, 0)
    arena.reclaim()
    assert list(arena.in_use) == [block.slot]


@pytest.mark.usefixtures("no_leaks")
def test_an_arena_that_is_dropped_holds_nothing() -> None:
    Arena(SIZE)


def test_untouched_memory_takes_no_room() -> None:
    arena = Arena(1 << 36)
    take(arena, 10)
    assert os.fstat(arena.file.descriptor).st_blocks <= 8
