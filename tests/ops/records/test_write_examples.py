import pytest
import torch

from graphfeed.ops.records import ExampleLayout, write_examples
from tests import tfrecords

INTEGERS = [0, 1, 127, 128, 2**14 - 1, 2**14, 2**35, 2**63 - 1, -1, -(2**63)]


@pytest.mark.parametrize("count", [1, 2, 9, 13, 100])
def test_the_bytes_are_those_of_the_format(count: int) -> None:
    rows: list[tfrecords.Example] = [
        {
            "a": [INTEGERS[(row + place) % len(INTEGERS)] for place in range(count)],
            "b" * 150: [float(row)] * count,
            "": [b"x" * 200] * count,
        }
        for row in range(12)
    ]
    layout = ExampleLayout(list(rows[0]), ["int64", "float", "bytes"], [count] * 3, [8, 4, 200])
    data = torch.zeros(layout.buffer_bytes(12), dtype=torch.uint8)
    columns = layout.columns(data, 12)
    columns["a"].copy_(torch.tensor([row["a"] for row in rows]))
    columns["b" * 150].copy_(torch.tensor([row["b" * 150] for row in rows]))
    columns[""].fill_(ord("x"))
    wanted = b"".join(tfrecords.record(tfrecords.example(row)) for row in rows)
    assert bytes(write_examples(data, 12, layout).tolist()) == wanted


def test_rows_without_features_are_empty_messages() -> None:
    written = write_examples(torch.zeros(8, dtype=torch.uint8), 2, ExampleLayout([], [], [], []))
    assert bytes(written.tolist()) == tfrecords.record(b"\x0a\x00") * 2


def test_a_buffer_that_is_not_contiguous_is_written_in_its_order() -> None:
    layout, data = ExampleLayout(["a"], ["int64"], [1], [8]), torch.arange(5, 8).view(torch.uint8)
    assert torch.equal(write_examples(data.repeat_interleave(2)[::2], 3, layout), write_examples(data, 3, layout))


def test_a_buffer_of_another_size_is_refused() -> None:
    layout = ExampleLayout(["a"], ["int64"], [1], [8])
    with pytest.raises(ValueError, match="data must have 16 bytes from a multiple of 8 on, but has 8"):
        write_examples(torch.zeros(8, dtype=torch.uint8), 2, layout)


def test_places_are_no_values_to_write() -> None:
    with pytest.raises(ValueError, match="layout has places, which are for reading"):
        write_examples(torch.zeros(16, dtype=torch.uint8), 1, ExampleLayout(["a"], ["places"], [1], [16]))
