"""Operations on records in memory: find them in the bytes of a file, verify them, and parse them into columns.

`graphfeed.ingest` opens, reads and decompresses the files.
"""

from graphfeed.ops.records.crc32c import crc32c
from graphfeed.ops.records.example_layout import PLACES, ExampleLayout
from graphfeed.ops.records.parse_examples import ExampleProblem, parse_examples
from graphfeed.ops.records.scan_records import MOST_RECORD_BYTES, Scanned, scan_records

# fmt: off
__all__ = [
    "MOST_RECORD_BYTES", "PLACES", "ExampleLayout", "ExampleProblem", "Scanned", "crc32c", "parse_examples",
    "scan_records",
]
# fmt: on
