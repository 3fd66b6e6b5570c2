import numpy as np
import pytest

from graphfeed.loader.transport.message import BLOCK, INLINE, PREFIX, MessageReader, Record
from graphfeed.ops.memory.shared_memory import Bytes
from graphfeed.storage.memory import Frame


def as_array(record: Record, rest: bytes = b"") -> Bytes:
    return np.frombuffer(record.pack() + rest, dtype=np.uint8)


def test_what_is_packed_is_unpacked() -> None:
    record = Record(BLOCK, 1 << 40, 5, 1 << 41, 1 << 42)
    assert Record.unpack(as_array(record)) == record
    assert len(record.pack()) == PREFIX.size == 64


def test_a_message_in_the_record_is_read_in_place() -> None:
    frame = Frame(b"header", [np.arange(100, dtype=np.uint8)])
    record = as_array(Record(INLINE, frame.size), b"".join(frame.pieces()))
    header, (data,) = MessageReader().read(record, None)
    assert (header, data.tolist()) == (b"header", list(range(100)))
    assert np.shares_memory(data, record)


def test_a_block_of_an_unknown_arena_is_an_error() -> None:
    with pytest.raises(OSError, match="did not arrive: this process has too many open files"):
        MessageReader().read(as_array(Record(BLOCK, 64)), None)
