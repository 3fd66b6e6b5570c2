import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.cpu.records import crc32c as kernels
from graphfeed.ops.records import crc32c
from tests import tfrecords


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_checksums(data: bytes, checksum: int) -> None:
    """Those of RFC 3720, and others known."""
    assert crc32c(tfrecords.as_tensor(data)) == checksum


@given(st.binary(max_size=70))
def test_any_bytes_have_the_checksum_of_the_definition_by_instruction_and_by_table(data: bytes) -> None:
    wanted = tfrecords.crc32c(data)
    assert crc32c(tfrecords.as_tensor(data)) == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "add_word", kernels.add_word_by_table)
        assert kernels.crc32c.interpret(tfrecords.as_tensor(data)) == wanted


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"data must be torch\.uint8, but is torch\.int64"):
        crc32c(torch.arange(3))
