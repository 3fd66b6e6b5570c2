"""Bytes of records: their frames and checksums, and the examples in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.cpu.records import crc32c as kernels
from graphfeed.ops.records import (
    MOST_RECORD_BYTES,
    ExampleLayout,
    ExampleProblem,
    crc32c,
    parse_examples,
    scan_records,
)
from tests.kinds import tfrecords
from tests.kinds.tfrecords import Example, entry, example, feature, field

PUBLISHED = {
    b"": 0,
    b"a": 0xC1D04330,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
}
"""Checksums of RFC 3720, and others known."""


def test_published_checksums() -> None:
    assert {data: crc32c(tfrecords.as_tensor(data)) for data in PUBLISHED} == PUBLISHED


@given(st.binary(max_size=70))
def test_any_bytes_have_the_checksum_of_the_definition_by_instruction_and_by_table(data: bytes) -> None:
    wanted = tfrecords.crc32c(data)
    assert crc32c(tfrecords.as_tensor(data)) == wanted
    assert kernels.crc32c.interpret(tfrecords.as_tensor(data)) == wanted


def scan(data: bytes, room: int = 20, begin: int = 0, verify: bool = True) -> tuple[list[bytes], int, str]:
    starts, sizes = torch.zeros(2, room, dtype=torch.int64)
    found = scan_records(tfrecords.as_tensor(data), starts, sizes, begin, verify)
    pairs = zip(starts[: found.records].tolist(), sizes[: found.records].tolist(), strict=True)
    return [data[start : start + size] for start, size in pairs], found.stop, found.problem


@given(
    verify=st.booleans(),
    contents=st.lists(st.binary(max_size=40), max_size=12),
    rest=st.integers(0, 30),
)
def test_whole_records_are_found_and_the_rest_is_left(verify: bool, contents: list[bytes], rest: int) -> None:
    whole = b"".join(map(tfrecords.record, contents))
    part = tfrecords.record(b"x" * 20)[:rest]
    assert scan(whole + part, verify=verify) == (contents, len(whole), "")


def test_full_results_end_a_scan_which_goes_on_from_there() -> None:
    data = b"".join(map(tfrecords.record, [b"a", b"bc", b""]))
    contents, stop, _ = scan(data, room=2)
    assert contents == [b"a", b"bc"]
    assert scan(data, begin=stop) == ([b""], len(data), "")


def test_a_wrong_checksum_is_found_if_it_is_asked_for() -> None:
    first = tfrecords.record(b"abc")
    for place, problem in ((0, "length"), (9, "length"), (12, "content"), (19, "content")):
        second = bytearray(tfrecords.record(b"defg"))
        second[place] ^= 1
        assert scan(first + second) == ([b"abc"], len(first), f"the {problem} has a wrong checksum")
        assert scan(first + second, verify=False)[2] == ""


def test_a_length_beyond_what_a_message_may_have_is_refused() -> None:
    for length in (MOST_RECORD_BYTES + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 16):
        head = length.to_bytes(8, "little")
        for verify in (True, False):
            contents, stop, problem = scan(head + tfrecords.masked(head) + bytes(50), verify=verify)
            assert (contents, stop) == ([], 0)
            assert "above the 2147483647 bytes" in problem


def test_bytes_that_are_not_contiguous_are_scanned_in_their_order() -> None:
    starts, sizes = torch.zeros(2, 4, dtype=torch.int64)
    data = tfrecords.as_tensor(b"".join(map(tfrecords.record, [b"abc", b""]))).repeat_interleave(2)[::2]
    assert scan_records(data, starts, sizes, 0, verify=True) == (2, len(data), "")


LAYOUT = ExampleLayout(["id", "w", "tag"], ["int64", "float", "bytes"], counts=[1, 2, 1], widths=[8, 4, 3])
REST = example({"w": [0.5, 2.0], "tag": [b"abc"]})[2:]
"""The entries of a row without its id."""
ROW: Example = {"id": [-5], "w": [0.5, 2.0], "tag": [b"abc"]}


def parse(
    contents: list[bytes], layout: ExampleLayout = LAYOUT, defaults: dict[str, torch.Tensor] | None = None
) -> dict[str, list[object]] | ExampleProblem:
    """Return the columns that records hold, or what is wrong."""
    data = torch.tensor(list(b"".join(contents)), dtype=torch.uint8)
    sizes = torch.tensor([len(content) for content in contents], dtype=torch.int64)
    out = torch.full((layout.buffer_bytes(len(contents)),), 255, dtype=torch.uint8)
    problem = parse_examples(data, sizes.cumsum(0) - sizes, sizes, layout, out, defaults)
    if problem is not None:
        return problem
    return {name: values.tolist() for name, values in layout.columns(out, len(contents)).items()}


def text_of(contents: list[bytes]) -> str:
    found = parse(contents)
    assert isinstance(found, ExampleProblem)
    return found.text


def test_values_go_to_the_rows_of_their_records() -> None:
    other: Example = {"id": [2**63 - 1], "w": [1.0, -1.0], "tag": [b"xyz"]}
    assert parse([example(ROW), example(other)]) == {
        "id": [[-5], [2**63 - 1]],
        "w": [[0.5, 2.0], [1.0, -1.0]],
        "tag": [[list(b"abc")], [list(b"xyz")]],
    }


FORMS = {
    "another order": example({name: ROW[name] for name in ("tag", "w", "id")}),
    "values that are not packed": example(ROW, packed=False),
    "features that are not in the layout": example({"other": [1], **ROW, "more": [b"", b"x"]}),
    "names that resemble others": example({"i": [1], "ids": [2], **ROW}),
    "unknown fields": field(9, b"x") + b"\x50\x01" + b"\x5d1234" + b"\x6112345678" + example(ROW),
    "two maps": example({"id": ROW["id"]}) + example({"w": ROW["w"], "tag": ROW["tag"]}),
    "a value before its name": field(1, field(1, field(2, feature([-5])) + field(1, b"id")) + REST),
    "a list in two parts": field(1, entry("id", field(3, b"") + feature([-5])) + REST),
}


def test_whatever_protobuf_allows_gives_the_same_row() -> None:
    usual = example(ROW)
    for name, content in FORMS.items():
        assert parse([usual, content, usual]) == parse([usual] * 3), name


@pytest.mark.parametrize("count", [1, 16, 5000])
def test_long_lists_are_read_as_short_ones(count: int) -> None:
    layout = ExampleLayout(["f", "i", "b"], ["float", "int64", "bytes"], [count] * 3, [4, 8, 2])
    rows: list[Example] = [
        {
            "f": [float(i + k) for i in range(count)],
            "i": [k * 300 - i for i in range(count)],
            "b": [b"%02d" % k] * count,
        }
        for k in range(3)
    ]  # fmt: skip
    found = parse([example(row) for row in rows], layout)
    assert isinstance(found, dict)
    assert found["f"] == [row["f"] for row in rows]
    assert found["i"] == [row["i"] for row in rows]
    assert found["b"] == [[list(b"%02d" % k)] * count for k in range(3)]


def test_a_record_without_a_feature_has_its_default() -> None:
    defaults = {"id": torch.tensor([7]), "tag": torch.tensor(list(b"???"), dtype=torch.uint8)}
    found = parse([example({"w": [0.0, 0.0]}), example(ROW), example({"id": [1], "w": [0.0, 0.0]})], defaults=defaults)
    assert isinstance(found, dict)
    assert found["id"] == [[7], [-5], [1]]
    assert found["tag"] == [[list(b"???")], [list(b"abc")], [list(b"???")]]


UNREADABLE = [
    (example({"id": [1], "w": [0.0, 0.0]}), "feature 'tag' is missing"),
    (field(1, entry("tag", b"") + example({"id": [1], "w": [0.0, 0.0]})[2:]), "feature 'tag' is missing"),
    (example({**ROW, "id": [1, 2]}), "feature 'id' has 2 values, and not 1"),
    (example({**ROW, "w": [1.0]}), "feature 'w' has 1 values, and not 2"),
    (example({**ROW, "w": [1.0] * 1000}), "feature 'w' has 1000 values, and not 2"),
    (example({**ROW, "tag": [b"abcd"]}), "feature 'tag' has 4 bytes, and not 3"),
    (example({**ROW, "tag": [b"abc", b"abc"]}), "feature 'tag' has 2 values, and not 1"),
    (example({**ROW, "id": [1.0]}), "feature 'id' is a list of float, and not of int64"),
    (example({**ROW, "w": [b"xy"]}), "feature 'w' is a list of bytes, and not of float"),
    (field(1, example(ROW)[2:] * 2), "feature 'id' occurs twice"),
    (example({"id": [1]}) + b"\x0a", "the content is not a tf.train.Example"),
    (b"\x08\x01", "the content is not a tf.train.Example"),
    (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the content is not a tf.train.Example"),
    (b"\x0a" + b"\x80" * 11, "the content is not a tf.train.Example"),
    (b"\x0b\x0c", "the content is not a tf.train.Example"),
    (b"\x02\x00", "the content is not a tf.train.Example"),
    (field(1, entry("id", field(3, field(1, b"\x80")))), "feature 'id' is malformed"),
    (field(1, entry("id", field(3, b"\x0a\x7f"))), "feature 'id' is malformed"),
    (field(1, entry("w", field(2, field(1, b"abcde")))), "feature 'w' is malformed"),
    (field(1, entry("w", b"\x10\x01")), "feature 'w' is malformed"),
]


def test_what_cannot_be_read_is_said_with_its_place() -> None:
    before = [example(ROW)] * 2
    start = sum(map(len, before))
    for content, text in UNREADABLE:
        found = parse([*before, content])
        assert isinstance(found, ExampleProblem), text
        assert (found.record, found.text.partition(";")[0]) == (2, text)
        assert start <= found.place <= start + len(content), text


def test_every_truncation_of_a_record_is_a_problem() -> None:
    content = example(ROW)
    assert all(text_of([content[:size]]) for size in range(len(content)))


def test_bytes_that_are_not_contiguous_are_read_in_their_order() -> None:
    data = torch.tensor(list(example(ROW)), dtype=torch.uint8).repeat_interleave(2)[::2]
    out = torch.zeros(LAYOUT.buffer_bytes(1), dtype=torch.uint8)
    assert parse_examples(data, torch.tensor([0]), torch.tensor([len(data)]), LAYOUT, out) is None
    assert {name: values.tolist() for name, values in LAYOUT.columns(out, 1).items()} == parse([example(ROW)])


PLACED = ExampleLayout(["tag", "id"], ["places", "int64"], counts=[2, 1], widths=[16, 8])


@pytest.mark.parametrize("packed", [True, False])
def test_places_say_where_bytes_of_any_length_lie(packed: bool) -> None:
    tags = [[b"abc", b""], [b"x" * 300, b"y"]]
    contents = [example({"id": [5], "tag": own}, packed=packed) for own in tags]
    found = parse(contents, PLACED)
    assert isinstance(found, dict)
    data, places = b"".join(contents), found["tag"]
    assert [[data[start : start + size] for start, size in own] for own in places] == tags  # type: ignore[attr-defined]
    assert found["id"] == [[5], [5]]


def test_what_is_wrong_with_bytes_of_any_length() -> None:
    for row, text in (
        ({"tag": [b"a"], "id": [1]}, "feature 'tag' has 1 values, and not 2; all records must have the same"),
        ({"tag": [1, 2], "id": [1]}, "feature 'tag' is a list of int64, and not of bytes"),
        ({"id": [1]}, "feature 'tag' is missing"),
    ):
        found = parse([example(row)], PLACED)  # type: ignore[arg-type]
        assert isinstance(found, ExampleProblem)
        assert found.text.startswith(text)


def test_a_fifth_kind_of_list_is_no_place() -> None:
    """A field that Example doesn't have must not be taken for what stands for places."""
    for size in (0, 16, 32):
        content = field(1, entry("tag", field(4, field(1, b"\xff" * size))) + entry("id", feature([1])))
        found = parse([content], PLACED)
        assert isinstance(found, ExampleProblem)
        assert found.text == "feature 'tag' is missing"


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
