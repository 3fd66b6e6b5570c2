"""Graphs in parts: how nodes are assigned to parts, and what the parts look like in memory and in files.

Every id that a user sees is global, so mini-batches do not depend on how a graph is partitioned. The stages that read a
graph in parts are those of `graphfeed.datapipes`, as for any other graph. A graph that one machine holds belongs to
`graphfeed.storage`.
"""

from graphfeed.distributed.assign import METHODS, assign_nodes
from graphfeed.distributed.assign_ldg import ldg_memory
from graphfeed.distributed.partition_picture import draw_report
from graphfeed.distributed.partition_report import PartitionReport, report_partition

__all__ = ["METHODS", "PartitionReport", "assign_nodes", "draw_report", "ldg_memory", "report_partition"]
