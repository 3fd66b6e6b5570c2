"""Operations on records in memory: find them in the bytes of a file, check them, read them into columns, write them.

They take bytes and know of no files: those are opened, decompressed and read in parts by `graphfeed.ingest`. Texts that
lie one behind the other are looked up here, too.
"""

from graphfeed.ops.records.crc32c import crc32c
from graphfeed.ops.records.example_layout import PLACES, ExampleLayout
from graphfeed.ops.records.parse_examples import ExampleProblem, parse_examples
from graphfeed.ops.records.scan_records import MOST_RECORD_BYTES, Scanned, scan_records
from graphfeed.ops.records.write_examples import FRAME_BYTES, most_bytes, write_examples

# fmt: off
__all__ = [
    "FRAME_BYTES", "MOST_RECORD_BYTES", "PLACES", "ExampleLayout", "ExampleProblem", "Scanned", "crc32c", "most_bytes",
    "parse_examples", "scan_records", "write_examples",
]
# fmt: on
