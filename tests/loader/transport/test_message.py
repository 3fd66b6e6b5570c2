import os

import numpy as np
import pytest

from graphfeed.loader.transport.arena import Arena
from graphfeed.loader.transport.message import BLOCK, FILE, INLINE, PREFIX, MessageReader, Record
from graphfeed.ops.shared_memory import Bytes, MemoryFile, map_shared
from graphfeed.storage.memory import Frame

pytestmark = pytest.mark.usefixtures("no_leaks")

HEADER, DATA = b"header", np.arange(100, dtype=np.uint8)
FRAME = Frame(HEADER, [DATA])


def as_array(record: Record, rest: bytes = b"") -> Bytes:
    return np.frombuffer(record.pack() + rest, dtype=np.uint8)


def check(message: tuple[bytes, list[Bytes]]) -> None:
    header, (data,) = message
    assert header == HEADER
    assert np.array_equal(data, DATA)


def test_what_is_packed_is_unpacked() -> None:
    record = Record(BLOCK, 1 << 40, 5, 1 << 41, 1 << 42)
    assert Record.unpack(as_array(record)) == record
    assert len(record.pack()) == PREFIX.size == 64


def test_a_message_in_the_record_is_read_in_place() -> None:
    memory: Bytes = np.zeros(FRAME.size, np.uint8)
    FRAME.write(memory)
    record = as_array(Record(INLINE, FRAME.size), memory.tobytes())
    message = MessageReader().read(record, None)
    check(message)
    assert np.shares_memory(message[1][0], record)


def test_a_message_in_a_file_keeps_no_descriptor() -> None:
    file = MemoryFile.create(FRAME.size)
    FRAME.write(map_shared(file.descriptor, FRAME.size))
    descriptor = os.dup(file.descriptor)
    check(MessageReader().read(as_array(Record(FILE, FRAME.size)), descriptor))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_arena_of_the_block_before_is_read_and_its_blocks_become_free() -> None:
    arena, reader = Arena(1 << 16), MessageReader()
    for number in range(2):
        block = arena.allocate(FRAME.size)
        assert block is not None
        FRAME.write(arena.memory[block.start : block.stop])
        record = as_array(Record(BLOCK, FRAME.size, block.slot, block.start, arena.size))
        message = reader.read(record, None if number else os.dup(arena.file.descriptor))
        check(message)
        arena.reclaim()
        assert len(arena.in_use) == 1
        del message
        arena.reclaim()
        assert not arena.in_use


def test_a_block_of_an_unknown_arena_is_an_error() -> None:
    with pytest.raises(OSError, match="did not arrive: this process has too many open files"):
        MessageReader().read(as_array(Record(BLOCK, FRAME.size)), None)
