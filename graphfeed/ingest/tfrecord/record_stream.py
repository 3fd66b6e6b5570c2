"""Buffered reading of the bytes of a TFRecord file, plain or compressed by gzip."""

import gzip
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
import torch

from graphfeed.ops.process import current_limits, regular_file
from graphfeed.ops.records import scan_records

PART_BYTES = 1 << 20
"""Bytes to read at once, few enough to be in the cache for the next step."""
MAGIC = b"\x1f\x8b"
HEAD_BYTES = 12


def is_compressed(file: IO[bytes], path: Path) -> bool:
    """Return whether a file is compressed, by its first bytes and its name. The position is reset to the start."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    # A plain file may begin with gzip's magic bytes, if its first record has that length.
    if head.startswith(MAGIC) and not is_head(head):
        return True
    if path.suffix.lower() == ".gz" and not is_head(head):
        raise ValueError(f"{path} is named as a gzip file, but does not begin like one: it is truncated or damaged")
    return False


def is_head(data: bytes) -> bool:
    """Return whether bytes are the length of a record and its checksum."""
    if len(data) < HEAD_BYTES:
        return False
    nothing = torch.empty(1, dtype=torch.int64, device="cpu")
    scanned = scan_records(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), nothing, nothing.clone(), 0, verify=True
    )
    return not scanned.problem


class RecordStream:
    """Reads a file into a buffer, whose unread rest moves to the front before more is read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        raw = open(self.path, "rb", buffering=0, opener=regular_file)  # noqa: SIM115
        self.raw: IO[bytes] = raw
        try:
            self.compressed = is_compressed(raw, self.path)
        except BaseException:
            raw.close()
            raise
        self.file: IO[bytes] = gzip.GzipFile(fileobj=raw) if self.compressed else raw  # type: ignore[assignment]
        self.buffer = np.empty(min(PART_BYTES, current_limits().part_bytes), dtype=np.uint8)
        self.begin = 0
        """Start of the unread bytes in the buffer."""
        self.end = 0
        self.offset = 0
        """Offset of the buffer in the decompressed file."""
        self.record = 0
        """Number of records read so far; the caller counts them."""

    def __enter__(self) -> "RecordStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.file.close()
        self.raw.close()

    @property
    def data(self) -> torch.Tensor:
        return torch.from_numpy(self.buffer[: self.end])

    def fill(self) -> bool:
        """Read more bytes; return whether there were any."""
        rest = self.end - self.begin
        if rest == len(self.buffer):
            # A record is longer than the buffer, which grows no further than the file has bytes.
            self.buffer = np.concatenate([self.buffer, np.empty_like(self.buffer)])
        elif self.begin:
            self.buffer[:rest] = self.buffer[self.begin : self.end].copy()
        self.offset += self.begin
        self.begin, self.end = 0, rest
        try:
            count = self.file.readinto(self.buffer[rest:].data)  # type: ignore[attr-defined]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.error(f"can't be decompressed: {error}", self.offset + rest) from error
        self.end += count
        return bool(count)

    def error(self, text: str, byte: int | None = None) -> ValueError:
        byte = self.offset + self.begin if byte is None else byte
        of_what = " of the decompressed file" if self.compressed else ""
        return ValueError(f"{self.path}: record {self.record}, at byte {byte}{of_what}: {text}")
