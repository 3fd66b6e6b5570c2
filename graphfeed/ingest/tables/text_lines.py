"""Text in blocks of whole lines, and lists of edges as plain text."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphfeed.ingest.tables.arrow_types import arrow

COMMENT = re.compile(rb"^[#%].*\n?", re.MULTILINE)
"""A line that says something about the edges, as files of SNAP and of KONECT have."""


def line_blocks(path: Path, most_bytes: int) -> Iterator[bytes]:
    """Yield a file's text in blocks of whole lines; what is compressed is unpacked."""
    rest = b""
    with arrow().input_stream(str(path), compression="detect") as stream:
        while block := stream.read(most_bytes):
            lines, newline, last = block.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = last
            else:
                rest += last
            if len(rest) > most_bytes:
                raise ValueError(f"a line is longer than {most_bytes} bytes; a quote may have no end")
    if rest:
        yield rest


class EdgeListText(io.RawIOBase):
    """A list of edges as plain text, with one tab between two values and without comments."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__()
        # Lists of edges have blanks or tabs in any number between the values, and lines of comments that begin with #
        # or %. pyarrow's reader of CSV knows neither.
        self.blocks = line_blocks(path, most_bytes)
        self.pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.pending:
            block = next(self.blocks, None)
            if block is None:
                return 0  # the end
            self.pending = memoryview(one_tab_between_values(block))
        size = min(len(buffer), len(self.pending))
        buffer[:size], self.pending = self.pending[:size], self.pending[size:]
        return size


def one_tab_between_values(lines: bytes) -> bytes:
    """Return lines without comments, whose values have one tab between them."""
    # With regular expressions for all of it, reading a list of edges took three times as long.
    lines = b"\n" + lines.replace(b" ", b"\t")
    while b"\t\t" in lines:
        lines = lines.replace(b"\t\t", b"\t")
    lines = lines.replace(b"\n\t", b"\n").replace(b"\t\n", b"\n").replace(b"\t\r", b"\r")
    if b"#" in lines or b"%" in lines:
        lines = COMMENT.sub(b"", lines)
    return lines[1:].removesuffix(b"\t")
