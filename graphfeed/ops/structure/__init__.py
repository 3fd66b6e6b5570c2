"""Deterministic operations on graph structure: CSC, relabelling, unique ids, lookups of ids and edges.

Random operations are in `graphfeed.ops.sampling`. The graphs that store these arrays are in `graphfeed.storage.graph`.
"""

from graphfeed.ops.structure.columns import join_columns, merge_columns, read_columns
from graphfeed.ops.structure.compact import Compacted, Marked, compact, compact_marked, compact_parts
from graphfeed.ops.structure.counting_sort import assign_slots, count_edges
from graphfeed.ops.structure.csc import (
    TYPE_DTYPES,
    Columns,
    check_columns,
    check_csc,
    check_edge_types,
    check_endpoints,
    check_joined,
    check_start_ends,
    check_starts,
    coo_to_csc,
    expand_indptr,
    indptr_edge_ids,
)
from graphfeed.ops.structure.induce_trees import InducedEdges, induce_trees
from graphfeed.ops.structure.isin import isin
from graphfeed.ops.structure.mark_first import mark_first
from graphfeed.ops.structure.match_pairs import PairedEdges, match_pairs, match_pairs_of_each
from graphfeed.ops.structure.mirror_edges import mirror_edges
from graphfeed.ops.structure.place_nodes import Items, place_nodes
from graphfeed.ops.structure.unique import unique_and_compact

# fmt: off
__all__ = [
    "TYPE_DTYPES", "Columns", "Compacted", "InducedEdges", "Items", "Marked", "PairedEdges", "assign_slots",
    "check_columns", "check_csc", "check_edge_types", "check_endpoints", "check_joined", "check_start_ends",
    "check_starts", "compact", "compact_marked", "compact_parts", "coo_to_csc", "count_edges", "expand_indptr",
    "indptr_edge_ids", "induce_trees", "isin", "join_columns", "mark_first", "match_pairs", "match_pairs_of_each",
    "merge_columns", "mirror_edges", "place_nodes", "read_columns", "unique_and_compact",
]
# fmt: on
