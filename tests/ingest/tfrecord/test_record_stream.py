import gzip
from pathlib import Path

import pytest

from graphfeed.ingest.tfrecord import record_stream
from graphfeed.ingest.tfrecord.record_stream import RecordStream
from tests import tfrecords


def read_all(path: Path) -> bytes:
    """Read a file in parts, of which half is taken each time."""
    taken = b""
    with RecordStream(path) as stream:
        while stream.fill():
            middle = (stream.begin + stream.end) // 2
            assert stream.offset == len(taken)
            taken += stream.buffer[stream.begin : middle].tobytes()
            stream.begin = middle
        return taken + stream.buffer[stream.begin : stream.end].tobytes()


@pytest.mark.parametrize("name", ["plain", "named.gz", "not-named"])
@pytest.mark.parametrize("part_bytes", [64, 1000, 1 << 20])
def test_the_bytes_come_in_order_whatever_is_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part_bytes: int
) -> None:
    monkeypatch.setattr(record_stream, "PART_BYTES", part_bytes)
    data = bytes(range(256)) * 40
    path = tmp_path / name
    path.write_bytes(data if name == "plain" else gzip.compress(data))
    assert read_all(path) == data


def test_a_plain_file_may_begin_like_a_compressed_one(tmp_path: Path) -> None:
    """Its first record has 35,615 bytes: 1f 8b."""
    path = tfrecords.write(tmp_path / "file", [bytes(0x8B1F)])
    assert path.read_bytes().startswith(b"\x1f\x8b")
    with RecordStream(path) as stream:
        assert not stream.compressed


def test_several_compressed_files_in_one_are_read_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"abc") + gzip.compress(b"def"))
    assert read_all(path) == b"abcdef"


@pytest.mark.parametrize("content", [b"", b"not compressed"])
def test_a_name_that_promises_compression_is_held_to_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.gz is named as a gzip file, but does not begin like one"):
        RecordStream(path)


def test_a_plain_file_may_keep_the_name_of_a_compressed_one(tmp_path: Path) -> None:
    """Some storage decompresses files as it hands them out."""
    path = tmp_path / "file.gz"
    path.write_bytes(tfrecords.record(b"abc"))
    assert read_all(path) == tfrecords.record(b"abc")
