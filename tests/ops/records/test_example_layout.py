import torch

from graphfeed.ops.records import ExampleLayout


def test_features_lie_behind_one_another_and_begin_at_multiples_of_eight() -> None:
    layout = ExampleLayout(
        ["a", "b", "c", "d"], ["bytes", "int64", "float", "places"], counts=[1, 2, 3, 1], widths=[3, 8, 4, 16]
    )
    assert layout.row_bytes == 3 + 16 + 12 + 16
    assert layout.bases(rows=3) == [0, 16, 64, 104, 152]
    columns = layout.columns(torch.zeros(152, dtype=torch.uint8), rows=3)
    assert {name: (values.dtype, tuple(values.shape)) for name, values in columns.items()} == {
        "a": (torch.uint8, (3, 1, 3)),
        "b": (torch.int64, (3, 2)),
        "c": (torch.float32, (3, 3)),
        "d": (torch.int64, (3, 1, 2)),
    }


def test_a_buffer_of_nothing_is_still_one_word_long() -> None:
    layout = ExampleLayout([], [], counts=[], widths=[])
    assert (layout.row_bytes, layout.buffer_bytes(rows=5), layout.columns(torch.zeros(8), rows=5)) == (0, 8, {})
