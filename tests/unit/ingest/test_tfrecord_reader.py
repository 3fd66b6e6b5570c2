"""TFRecord files as tensors."""

import gzip
import os
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphfeed.ingest import FixedLenFeature, read_tfrecords, write_tfrecords
from tests.kinds import tfrecords
from tests.kinds.refusals import Refusal, check_refused
from tests.stand_ins.forked import in_child

ROWS: list[tfrecords.Example] = [{"id": [k, -k], "w": [k / 2], "name": [b"%03d" % k]} for k in range(10)]
COLUMNS = {
    "id": torch.tensor([[k, -k] for k in range(10)]),
    "w": torch.arange(10) / 2,
    "name": torch.tensor([list(b"%03d" % k) for k in range(10)], dtype=torch.uint8),
}


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        assert torch.equal(found[name], values)


def test_rows_come_in_the_order_of_files_and_records(tmp_path: Path) -> None:
    names = ["b", "a.gz", "empty", "c"]
    parts = [ROWS[:3], ROWS[3:4], [], ROWS[4:]]
    files = [tfrecords.write(tmp_path / name, part) for name, part in zip(names, parts, strict=True)]
    assert_same(read_tfrecords(files), COLUMNS)
    assert_same(read_tfrecords(str(files[0])), {name: values[:3] for name, values in COLUMNS.items()})


def test_some_features_are_read_in_the_order_that_they_are_asked_for(tmp_path: Path) -> None:
    file = tfrecords.write(tmp_path / "file", ROWS)
    assert_same(read_tfrecords(file, ["w", "id"]), {"w": COLUMNS["w"], "id": COLUMNS["id"]})


def test_a_feature_that_the_first_record_lacks_is_an_error_unless_it_is_asked_for(tmp_path: Path) -> None:
    for place in [1, 5, 299]:
        rows: list[tfrecords.Example] = [{"id": [k], "long": [k] * 200} for k in range(300)]
        file = tfrecords.write(tmp_path / "file", rows)
        assert len(read_tfrecords(file)["long"]) == 300
        rows[place] = {"id": [1], "late": [1.0], "long": [1] * 200}
        file = tfrecords.write(tmp_path / "file", rows)
        with pytest.raises(
            ValueError, match=rf"file: record {place}, at byte \d+: feature 'late' is not in the first record"
        ):
            read_tfrecords(file)
        found = read_tfrecords(file, {"id": FixedLenFeature([], "int64"), "late": FixedLenFeature([], "float32", 0.0)})
        assert found["late"].nonzero().tolist() == [[place]]
        assert list(read_tfrecords(file, ["id"])) == ["id"]


def test_specs_say_shapes_dtypes_and_values_for_records_without_a_feature(tmp_path: Path) -> None:
    file = tfrecords.write(tmp_path / "file", [{"id": [1, 2]}, *ROWS[:1]])
    found = read_tfrecords(
        file,
        {
            "w": FixedLenFeature([1], torch.float32, 7.5),
            "id": FixedLenFeature([2, 1], "int64"),
            "name": FixedLenFeature([], "string", b"???"),
        },
    )
    wanted = {
        "w": torch.tensor([[7.5], [0.0]]),
        "id": torch.tensor([[[1], [2]], [[0], [0]]]),
        "name": torch.tensor([list(b"???"), list(b"000")], dtype=torch.uint8),
    }
    assert_same(found, wanted)


def test_files_without_records_have_the_shapes_of_their_specs(tmp_path: Path) -> None:
    file = tfrecords.write(tmp_path / "file", [])
    assert read_tfrecords(file) == {}
    found = read_tfrecords(file, {"a": FixedLenFeature([3], "float32"), "b": FixedLenFeature([], "string")})
    assert {name: tuple(values.shape) for name, values in found.items()} == {"a": (0, 3), "b": (0, 0)}
    with pytest.raises(ValueError, match="the files have no records, so the type of 'a' is unknown"):
        read_tfrecords([file], ["a"])


@given(data=st.data(), compression=st.sampled_from([None, "gzip"]))
def test_whatever_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: Any, compression: str | None
) -> None:
    rows = data.draw(st.integers(1, 30))
    columns = {}
    for name in data.draw(st.lists(st.text(max_size=140), unique=True, max_size=5)):
        kind = data.draw(st.sampled_from(["int64", "float32", "uint8"]))
        sizes = data.draw(st.lists(st.integers(0, 70), min_size=1 + (kind == "uint8"), max_size=1 + (kind == "uint8")))
        columns[name] = torch.from_numpy(data.draw(arrays.arrays(kind, (rows, *sizes), elements=values_of(kind))))
    path = tmp_path_factory.getbasetemp() / "round-trip"
    write_tfrecords(path, columns, compression)
    specs = {
        name: FixedLenFeature(values.shape[1:2], {torch.uint8: "string"}.get(values.dtype, values.dtype))
        for name, values in columns.items()
    }
    found = read_tfrecords(path, specs)
    assert found.keys() == columns.keys()
    for name, values in columns.items():
        if values.numel():
            assert torch.equal(found[name].view(torch.uint8), values.view(torch.uint8))
        assert found[name].dtype == values.dtype


def values_of(kind: str) -> Any:
    if kind == "float32":
        return st.floats(width=32)
    return (
        st.integers(0, 255)
        if kind == "uint8"
        else st.sampled_from([0, 1, 127, 128, 2**40, -1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
    )


def test_a_record_longer_than_the_buffer_is_read(tmp_path: Path) -> None:
    long = torch.arange(600_000).reshape(2, -1)
    write_tfrecords(tmp_path / "file", {"a": long})
    assert torch.equal(read_tfrecords(tmp_path / "file")["a"], long)


def test_what_differs_from_the_first_record_is_named_with_its_place(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"id": [0]}, "feature 'id' has 1 values, and not 2"),
        ({"w": [1]}, "feature 'w' is a list of int64, and not of float"),
        ({"name": [b"long"]}, "feature 'name' has 4 bytes, and not 3"),
    ]
    good = tfrecords.write(tmp_path / "good", ROWS)
    for (features, text), name in product(cases, ("file", "file.gz")):
        wrong = tfrecords.write(tmp_path / name, [*ROWS[:5], {**ROWS[5], **features}, *ROWS[6:]])
        of_what = " of the decompressed file" if name == "file.gz" else ""
        with pytest.raises(ValueError, match=rf"{name}: record 5, at byte \d+{of_what}: {text}"):
            read_tfrecords([good, wrong])


def test_a_wrong_checksum_is_named_unless_it_is_not_wanted(tmp_path: Path) -> None:
    file = tfrecords.write(tmp_path / "file", ROWS)
    starts = list(accumulate(len(tfrecords.record(tfrecords.example(row))) for row in ROWS))
    data = bytearray(file.read_bytes())
    data[starts[3] - 5] ^= 1  # the last byte of the content of record 3
    file.write_bytes(data)
    with pytest.raises(ValueError, match=rf"file: record 3, at byte {starts[2]}: the content has a wrong checksum"):
        read_tfrecords(file)
    assert len(read_tfrecords(file, verify=False)["id"]) == 10


def test_a_length_that_is_wrong_takes_no_memory(tmp_path: Path) -> None:
    head = (2**31 - 100).to_bytes(8, "little")
    file = tmp_path / "file"
    file.write_bytes(tfrecords.record(tfrecords.example(ROWS[0])) + head + tfrecords.masked(head) + bytes(100))
    for verify in (True, False):
        with pytest.raises(ValueError, match="record 1, at byte 64: the file ends within this record, after 112 bytes"):
            read_tfrecords(file, verify=verify)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    read: Any = read_tfrecords
    refused: list[Refusal] = [
        (lambda: read(5), TypeError, ""),
        (lambda: read([5]), TypeError, ""),
        (lambda: read(None), TypeError, ""),
        (lambda: read(b"x"), TypeError, ""),
        (lambda: read(str(tmp_path / "nowhere")), FileNotFoundError, "nowhere"),
    ]
    check_refused(refused)
    os.mkfifo(tmp_path / "pipe")
    answer = in_child(lambda: read(tmp_path / "pipe"), seconds=20)
    assert answer.startswith(f"ValueError: {tmp_path / 'pipe'} is not a regular file"), answer


def test_the_tensors_may_be_written_to_and_saved(tmp_path: Path) -> None:
    found = read_tfrecords(tfrecords.write(tmp_path / "file", ROWS))
    found["w"] += 1
    torch.save(found, tmp_path / "saved")
    assert_same(torch.load(tmp_path / "saved", weights_only=True), {**COLUMNS, "w": COLUMNS["w"] + 1})


def test_a_file_is_compressed_if_it_begins_like_gzip_and_is_no_plain_file(tmp_path: Path) -> None:
    """The first record of the plain file has 35,615 bytes: 1f 8b."""
    content = tfrecords.example({"a": [b"x" * (0x8B1F - 23)]})
    assert len(content) == 0x8B1F
    plain = tfrecords.write(tmp_path / "plain", [content])
    assert plain.read_bytes().startswith(b"\x1f\x8b")
    assert read_tfrecords(plain)["a"].shape == (1, 0x8B1F - 23)
    parts = [b"".join(tfrecords.record(tfrecords.example(row)) for row in part) for part in (ROWS[:4], ROWS[4:])]
    several, decompressed = tmp_path / "several", tmp_path / "decompressed.gz"
    several.write_bytes(b"".join(map(gzip.compress, parts)))
    decompressed.write_bytes(b"".join(parts))  # some storage decompresses files when it delivers them
    for path in (several, decompressed):
        assert_same(read_tfrecords(path), COLUMNS)
    for wrong in (b"", b"not compressed"):
        (tmp_path / "file.gz").write_bytes(wrong)
        with pytest.raises(ValueError, match=r"file\.gz is named as a gzip file, but does not begin like one"):
            read_tfrecords(tmp_path / "file.gz")


def test_tensors_grow_with_the_records(tmp_path: Path) -> None:
    rows = 100_000
    columns = {"a": torch.arange(rows * 3).reshape(rows, 3), "b": torch.rand(rows), "none": torch.empty(rows, 0)}
    write_tfrecords(tmp_path / "file", columns)
    specs = {
        "a": FixedLenFeature([3], "int64"),
        "b": FixedLenFeature([], "float"),
        "none": FixedLenFeature([0], "float"),
    }
    assert_same(read_tfrecords(tmp_path / "file", specs), columns)
