import pytest
import torch

from graphfeed.ops.records import ExampleLayout, ExampleProblem, parse_examples
from tests.tfrecords import Example, entry, example, feature, field

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


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(example({name: ROW[name] for name in ("tag", "w", "id")}), id="another order"),
        pytest.param(example(ROW, packed=False), id="values that are not packed"),
        pytest.param(example({"other": [1], **ROW, "more": [b"", b"x"]}), id="features that nobody asked for"),
        pytest.param(example({"i": [1], "ids": [2], **ROW}), id="names that resemble others"),
        pytest.param(field(9, b"x") + b"\x50\x01" + b"\x5d1234" + b"\x6112345678" + example(ROW), id="unknown fields"),
        pytest.param(example({"id": ROW["id"]}) + example({"w": ROW["w"], "tag": ROW["tag"]}), id="two maps"),
        pytest.param(
            field(1, field(1, field(2, feature([-5])) + field(1, b"id")) + REST),
            id="a value before its name",
        ),
        pytest.param(
            field(1, entry("id", field(3, b"") + feature([-5])) + REST),
            id="a list in two parts",
        ),
    ],
)  # fmt: skip
def test_whatever_protobuf_allows_gives_the_same_row(content: bytes) -> None:
    usual = example(ROW)
    assert parse([usual, content, usual]) == parse([usual] * 3)


@pytest.mark.parametrize("count", [1, 16, 40, 5000])
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


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (example({"id": [1], "w": [0.0, 0.0]}), "feature 'tag' is missing"),
        (field(1, entry("tag", b"") + example({"id": [1], "w": [0.0, 0.0]})[2:]), "feature 'tag' is missing"),
        (example({**ROW, "id": [1, 2]}), "feature 'id' has 2 values, and not 1"),
        (example({**ROW, "w": [1.0]}), "feature 'w' has 1 values, and not 2"),
        (example({**ROW, "w": [1.0] * 1000}), "feature 'w' has 1000 values, and not 2"),
        (example({**ROW, "tag": [b"abcd"]}), "feature 'tag' has 4 bytes, and not 3"),
        (example({**ROW, "tag": [b"abc", b"abc"]}), "feature 'tag' has 2 values, and not 1"),
        (example({**ROW, "id": [1.0]}), "feature 'id' is a list of float, and not of int64"),
        (example({**ROW, "w": [b"xy"]}), "feature 'w' is a list of bytes, and not of float"),
        (field(1, example(ROW)[2:] * 2), "feature 'id' is there twice"),
        (example({"id": [1]}) + b"\x0a", "the content is no tf.train.Example"),
        (b"\x08\x01", "the content is no tf.train.Example"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the content is no tf.train.Example"),
        (b"\x0a" + b"\x80" * 11, "the content is no tf.train.Example"),
        (b"\x0b\x0c", "the content is no tf.train.Example"),
        (b"\x02\x00", "the content is no tf.train.Example"),
        (field(1, entry("id", field(3, field(1, b"\x80")))), "feature 'id' is malformed"),
        (field(1, entry("id", field(3, b"\x0a\x7f"))), "feature 'id' is malformed"),
        (field(1, entry("w", field(2, field(1, b"abcde")))), "feature 'w' is malformed"),
        (field(1, entry("w", b"\x10\x01")), "feature 'w' is malformed"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(content: bytes, text: str) -> None:
    before = [example(ROW)] * 2
    found = parse([*before, content])
    assert isinstance(found, ExampleProblem)
    assert (found.record, found.text.partition(";")[0]) == (2, text)
    start = sum(map(len, before))
    assert start <= found.place <= start + len(content)


def test_every_truncation_of_a_record_is_a_problem() -> None:
    content = example(ROW)
    assert all(text_of([content[:size]]) for size in range(len(content)))


def test_bytes_that_are_not_contiguous_are_read_in_their_order() -> None:
    data = torch.tensor(list(example(ROW)), dtype=torch.uint8).repeat_interleave(2)[::2]
    out = torch.zeros(LAYOUT.buffer_bytes(1), dtype=torch.uint8)
    assert parse_examples(data, torch.tensor([0]), torch.tensor([len(data)]), LAYOUT, out) is None
    assert {name: values.tolist() for name, values in LAYOUT.columns(out, 1).items()} == parse([example(ROW)])


def test_places_outside_of_the_bytes_are_refused() -> None:
    data, out = torch.zeros(10, dtype=torch.uint8), torch.zeros(LAYOUT.buffer_bytes(1), dtype=torch.uint8)
    most = 2**63 - 1
    for start, size in [(-1, 2), (5, 6), (11, 0), (2, -1), (most, most), (most, 1), (12, most), (0, most), (-most, 2)]:
        with pytest.raises(ValueError, match="must lie in the 10 bytes"):
            parse_examples(data, torch.tensor([start]), torch.tensor([size]), LAYOUT, out)
    with pytest.raises(ValueError, match="out must have 24 bytes"):
        parse_examples(data, torch.tensor([0]), torch.tensor([1]), LAYOUT, out[:-1])
    with pytest.raises(TypeError, match=r"out must be torch\.uint8, but is torch\.int64"):
        parse_examples(data, torch.tensor([0]), torch.tensor([1]), LAYOUT, out.long())
    with pytest.raises(ValueError, match="out must be contiguous, but has the stride 2"):
        parse_examples(data, torch.tensor([0]), torch.tensor([1]), LAYOUT, out.repeat(2)[::2])
    with pytest.raises(ValueError, match="the default of 'w' must have the size of a row, but has 4 bytes"):
        parse_examples(data, torch.tensor([0]), torch.tensor([1]), LAYOUT, out, {"w": torch.zeros(1)})


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
        ({"tag": [b"a"], "id": [1]}, "feature 'tag' has 1 values, and not 2; all records must have equally many"),
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
