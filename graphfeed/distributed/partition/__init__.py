"""Partitions on disk: their layout, writing and opening parts, reports, and the command.

Methods that assign nodes to parts are in `graphfeed.storage.graph` (`assign_nodes`).
"""

from graphfeed.distributed.partition.reader import StoredPart, open_part
from graphfeed.distributed.partition.report import PartitionReport, report_partition
from graphfeed.distributed.partition.writer import write_partition

__all__ = [
    "PartitionReport", "StoredPart", "open_part", "report_partition", "write_partition",
]  # fmt: skip
