"""Counts the rows of text files without the engine, to compare them with the rows that the engine has read."""

import csv
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphfeed.ingest.queries.files import LINE_BYTES, is_gzip

BLOCK_BYTES = 1 << 22
LINE_FEED, RETURN, QUOTE = b'\n\r"'


def open_text(file: Path, mode: str, **options: Any) -> Any:
    """Open a text file, which may be compressed."""
    return (gzip.open if is_gzip(file) else open)(file, mode, **options)


def check_row_count(file: Path, found: int, delimiter: str | None, empty_lines: bool) -> None:
    """Raise unless a file has `found` rows. Without a delimiter, each line is a row."""
    if found == count_rows(file, delimiter is not None, empty_lines):
        return
    rows = recount_rows(file, delimiter, empty_lines)
    if found != rows:
        raise ValueError(f"the engine read {found} of its {rows} rows; look for long lines and unclosed quotes")


def count_rows(file: Path, quoted: bool, empty_lines: bool) -> int:
    """Return the number of lines, ignoring line ends in quotes. Quotes in the middle of values can make it wrong."""
    rows, inside, end, last = 0, 0, LINE_FEED, True
    with open_text(file, "rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            if not rows and LINE_FEED not in block:
                end = RETURN
            data = np.frombuffer(block, dtype=np.uint8)
            ends = data == end
            if quoted and (inside or QUOTE in block):
                within = (np.cumsum(data == QUOTE, dtype=np.uint8) + np.uint8(inside)) & 1
                ends &= within == 0
                inside = int(within[-1])
            starts = np.concatenate([[last], ends[:-1]])
            last = bool(ends[-1])
            if not empty_lines:
                starts &= (data != LINE_FEED) & (data != RETURN)
            rows += int(np.count_nonzero(starts))
    return rows


def recount_rows(file: Path, delimiter: str | None, empty_lines: bool) -> int:
    """Return the exact number of rows. Raise if a row is too long, or if line ends differ."""
    rows, ending, line = 0, "", ""

    def lines() -> Iterator[str]:
        nonlocal line
        for line in opened:  # noqa: UP028
            yield line

    with open_text(file, "rt", encoding="utf-8-sig", errors="replace", newline="") as opened:
        reader = csv_reader(lines(), delimiter)
        try:
            for row in reader:
                rows += bool(row) or empty_lines
                own = line[len(line.rstrip("\r\n")) :]
                ending = ending or own
                if delimiter is not None and own not in ("", ending):
                    raise ValueError(
                        f"{file}: line {reader.line_num} ends with {own!r}, but the lines before it with {ending!r}; "
                        "save the file with one kind of line ends"
                    )
        except csv.Error as error:
            raise ValueError(f"{file}: line {reader.line_num} can't be read: {error}") from error
    return rows


def csv_reader(lines: Iterable[str], delimiter: str | None) -> Any:
    """Return a reader of rows; without a delimiter, of unsplit lines."""
    csv.field_size_limit(LINE_BYTES)
    if delimiter is None:
        return csv.reader(lines, delimiter="\x01", quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=delimiter)
