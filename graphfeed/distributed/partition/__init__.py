"""Partitions on disk: their layout, how parts are written and opened, reports, and the command.

Methods that assign nodes to parts are in `graphfeed.storage.graph`, as `assign_nodes` and what it calls.
"""

from graphfeed.distributed.partition.reader import StoredPart, open_part
from graphfeed.distributed.partition.report import PartitionReport, report_partition
from graphfeed.distributed.partition.writer import write_partition

__all__ = [
    "PartitionReport", "StoredPart", "open_part", "report_partition",
    "write_partition",
]  # fmt: skip
