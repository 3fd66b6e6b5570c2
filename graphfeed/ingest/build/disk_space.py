"""How much room a data set takes on the disk at least, which is looked at before anything is read."""

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphfeed.ingest.build.row_outputs import is_reference, open_reference
from graphfeed.ingest.build.spec import EdgeTable, Table
from graphfeed.ingest.tables.arrow_types import arrow, is_list, is_plain_number
from graphfeed.ingest.tables.column_types import first_length
from graphfeed.ingest.tables.columns import OnError
from graphfeed.ingest.tables.table import TableSource

EDGE_BYTES = 12
"""What an edge takes at least: both ends in scratch files, until all is sorted, and its source in the graph."""
ATTRIBUTE_BYTES = {"weight": 4, "time": 8}
GB = 1_000_000_000


def check_free_space(folder: Path, needed: int) -> None:
    """Raise an OSError if a disk has less room than is needed, with what an earlier run has written to the folder."""
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    if needed > free + written:
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: the data set takes {needed / GB:.1f} GB at least while it is made, and "
            f"{(free + written) / GB:.1f} GB are free",
            str(folder.parent),
        )


def least_bytes(
    sources: Mapping[tuple[str, str | None], Sequence[TableSource]],
    tables: Mapping[str, Mapping[str | None, Table]],
    folder: Path,
    on_error: OnError = "raise",
) -> int:
    """Return how many bytes the edges and the features of all tables take at least."""
    total, twice = 0, 0
    for (key, entry), group in sources.items():
        table = tables[key][entry]
        columns = [name for names in table.features.values() for name in names]
        # Tables that don't say how many rows they have, such as CSV files, count as nothing.
        rows = sum(source.num_rows() or 0 for source in group)
        features = sum(open_reference(name, folder).nbytes // 2 for name in columns if is_reference(name))  # as float32
        if any(source.num_rows() for source in group[:1]):  # vectors are as long as those of the first table
            features += rows * sum(row_bytes(group[0], name) for name in columns if not is_reference(name))
        if isinstance(table, EdgeTable):
            attributes = [name for name in ATTRIBUTE_BYTES if isinstance(getattr(table, name), str)]
            total += rows * (EDGE_BYTES + sum(2 * ATTRIBUTE_BYTES[name] for name in attributes))
        total += features
        # If rows are skipped, features are written twice, one type after the other.
        twice = max(twice, features if on_error == "skip" and len(group) > 1 else 0)
    return total + twice


def row_bytes(source: TableSource, column: str) -> int:
    """Return how many bytes a value of a feature takes, by its type and by the length of the first vector."""
    schema = source.schema()
    if column not in schema.names:
        return 0  # an error where the table is read
    arrow_type, length = schema.field(column).type, 1
    if is_list(arrow_type):
        arrow_type, length = arrow_type.value_type, first_length(source, column) or 0
    if not is_plain_number(arrow_type):
        return length
    size = int(arrow_type.bit_width) // 8
    return length * (min(size, 4) if arrow().types.is_floating(arrow_type) else size)
