from itertools import accumulate, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.cpu.records import crc32c as kernels
from graphfeed.ops.records import MOST_RECORD_BYTES, TextNumbers, crc32c, find_texts, index_texts, scan_records
from graphfeed.ops.records.number_texts import LEAST_BYTES
from tests import tfrecords

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "add_word", kernels.add_word_by_table)
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


TEXTS = st.lists(st.text(max_size=3).map(str.encode) | st.binary(max_size=20), max_size=30)


def parts(texts: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor(list(b"".join(texts)), dtype=torch.uint8)
    return values, torch.tensor([0, *accumulate(map(len, texts))])


@given(texts=TEXTS, asked=TEXTS)
def test_each_text_is_found_at_its_first_place(texts: list[bytes], asked: list[bytes]) -> None:
    table = index_texts(*parts(texts))
    found = find_texts(*parts(texts), table, *parts([*asked, *texts]))
    assert found.tolist() == [texts.index(text) if text in texts else -1 for text in [*asked, *texts]]


def test_texts_that_share_a_slot_are_told_apart() -> None:
    texts = [b"%d" % number for number in range(3000)]
    table = index_texts(*parts(texts))
    assert (len(table), table.dtype) == (8192, torch.int64)
    assert torch.equal(find_texts(*parts(texts), table, *parts(texts)), torch.arange(3000))
    assert find_texts(*parts(texts), table, *parts([b"3000", b""])).tolist() == [-1, -1]


def test_a_table_or_texts_that_are_others_find_nothing_beyond_them() -> None:
    """The searched texts are not checked at each call, so the kernel has to stay inside."""
    values = torch.tensor(list(b"ab"), dtype=torch.uint8)
    tables = [[7, -5, 1 << 62, 0], [0, 0, 0, 0], [1, 1, -1, 1]]
    for table, offsets in product(tables, [[0, 1, 2], [0, 1 << 62, 2], [-(1 << 62), 1, 1 << 62], []]):
        given_offsets = torch.tensor(offsets, dtype=torch.int64)
        found = find_texts(values, given_offsets, torch.tensor(table), *parts([b"a", b"zz" * 40]))
        assert found.tolist()[1] == -1, (table, offsets)


@given(batches=st.lists(TEXTS, max_size=4))
def test_texts_have_numbers_by_their_first_appearance(batches: list[list[bytes]]) -> None:
    texts, known = TextNumbers(), dict[bytes, int]()
    for batch in batches:
        expected = [known.setdefault(text, len(known)) for text in batch]
        assert texts.number(*parts(batch)).tolist() == expected
        values, offsets = parts(list(known))
        assert torch.equal(texts.values, values)
        assert torch.equal(texts.offsets, offsets)


def test_memory_grows_for_many_texts_and_for_long_ones() -> None:
    many = [b"%d" % number for number in range(3 * LEAST_BYTES // 8)]
    texts = TextNumbers()
    for batch in (many, [b"long" * LEAST_BYTES, b"", *many]):
        texts.number(*parts(batch))
    assert texts.number(*parts(many[::-1])).tolist() == list(reversed(range(len(many))))
    assert len(texts) == len(many) + 2
