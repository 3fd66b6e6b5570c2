import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.records import MOST_RECORD_BYTES, scan_records
from tests import tfrecords


def scan(data: bytes, room: int = 20, begin: int = 0, verify: bool = True) -> tuple[list[bytes], int, str]:
    starts, sizes = torch.zeros(2, room, dtype=torch.int64)
    found = scan_records(tfrecords.as_tensor(data), starts, sizes, begin, verify)
    pairs = zip(starts[: found.records].tolist(), sizes[: found.records].tolist(), strict=True)
    return [data[start : start + size] for start, size in pairs], found.stop, found.problem


@pytest.mark.parametrize("verify", [True, False])
@given(contents=st.lists(st.binary(max_size=40), max_size=12), rest=st.integers(0, 30))
def test_whole_records_are_found_and_the_rest_is_left(verify: bool, contents: list[bytes], rest: int) -> None:
    whole = b"".join(map(tfrecords.record, contents))
    part = tfrecords.record(b"x" * 20)[:rest]
    assert scan(whole + part, verify=verify) == (contents, len(whole), "")


def test_full_results_end_a_scan_which_goes_on_from_there() -> None:
    data = b"".join(map(tfrecords.record, [b"a", b"bc", b""]))
    contents, stop, _ = scan(data, room=2)
    assert contents == [b"a", b"bc"]
    assert scan(data, begin=stop) == ([b""], len(data), "")


@pytest.mark.parametrize(("place", "problem"), [(0, "length"), (9, "length"), (12, "content"), (19, "content")])
def test_a_wrong_checksum_is_found_if_it_is_asked_for(place: int, problem: str) -> None:
    first = tfrecords.record(b"abc")
    second = bytearray(tfrecords.record(b"defg"))
    second[place] ^= 1
    contents, stop, found = scan(first + second)
    assert (contents, stop, found) == ([b"abc"], len(first), f"the {problem} has a wrong checksum")
    assert scan(first + second, verify=False)[2] == ""


@pytest.mark.parametrize("length", [MOST_RECORD_BYTES + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 16])
@pytest.mark.parametrize("verify", [True, False])
def test_a_length_beyond_what_a_message_may_have_is_refused(length: int, verify: bool) -> None:
    head = length.to_bytes(8, "little")
    contents, stop, problem = scan(head + tfrecords.masked(head) + bytes(50), verify=verify)
    assert (contents, stop) == ([], 0)
    assert "above the 2147483647 bytes" in problem


def test_bytes_that_are_not_contiguous_are_scanned_in_their_order() -> None:
    starts, sizes = torch.zeros(2, 4, dtype=torch.int64)
    data = tfrecords.as_tensor(b"".join(map(tfrecords.record, [b"abc", b""]))).repeat_interleave(2)[::2]
    assert scan_records(data, starts, sizes, 0, verify=True) == (2, len(data), "")


def test_results_and_places_that_do_not_fit_are_refused() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="equally long, but have 2 and 1 values"):
        scan_records(tfrecords.as_tensor(b""), ids, ids[:1], 0, verify=True)
    with pytest.raises(ValueError, match=r"begin must lie in 0 \.\. 0, but is 1"):
        scan_records(tfrecords.as_tensor(b""), ids, ids, 1, verify=True)
