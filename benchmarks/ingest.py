"""Speed and memory of reading files."""

from collections.abc import Iterator

from benchmarks import ingest_tables, ingest_tfrecords
from benchmarks.scale import Scale


def report(scale: Scale) -> Iterator[str]:
    """Yield the tables of each format."""
    yield from ingest_tables.tables(scale)
    yield from ingest_tfrecords.tables(scale)
