import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.transport.layout import lay_out, split
from graphfeed.ops.shared_memory import ALIGNMENT, Bytes


@given(st.binary(max_size=200), st.lists(st.binary(max_size=200), max_size=6))
def test_a_message_is_split_into_what_was_written(header: bytes, buffers: list[bytes]) -> None:
    arrays: list[Bytes] = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    layout = lay_out(len(header), [len(buffer) for buffer in buffers])
    memory: Bytes = np.zeros(layout.size, np.uint8)
    layout.write(memory, header, arrays)
    assert all(place.start % ALIGNMENT == 0 for place in layout.buffers)
    found, views = split(memory, len(header), len(buffers))
    assert (found, [view.tobytes() for view in views]) == (header, buffers)
    assert all(np.shares_memory(view, memory) for view in views if view.size)


def test_it_is_aligned_and_in_order() -> None:
    layout = lay_out(1, (64, 65, 0, 3))
    assert [(place.start, place.stop) for place in layout.buffers] == [(64, 128), (128, 193), (256, 256), (256, 259)]
    assert (layout.header, layout.size) == (slice(32, 33), 259)


def test_a_message_that_misses_a_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        lay_out(0, (1, 1)).write(np.zeros(200, np.uint8), b"", [np.zeros(1, np.uint8)])
