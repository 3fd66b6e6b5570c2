"""HOW: pure functions on arrays, one operation per file.

Each file has an operation's contract, its checks and the allocation of its results. The kernels are in
`graphfeed.ops.cpu` and `graphfeed.ops.cuda`, under the same names. Operations know nothing of stages, loaders or files:
what is stored, and how, belongs to `graphfeed.storage`.
"""

from graphfeed.ops.completed_future import CompletedFuture
from graphfeed.ops.pinned import max_uva_threads, pin_in_place, set_max_uva_threads
from graphfeed.ops.random import Key, draw_key, draw_unkeyed, seed
from graphfeed.ops.rows.cache_policy import (
    POLICIES,
    Found,
    PolicyState,
    clear_policy,
    find_keys,
    new_policy,
    policy_bytes,
    replace_keys,
)
from graphfeed.ops.rows.cache_sets import CacheSets, clear_sets, find_in_sets, new_sets, replace_in_sets
from graphfeed.ops.rows.copy_rows import copy_rows
from graphfeed.ops.rows.delete_rows import delete_from_columns, delete_rows
from graphfeed.ops.rows.gather import gather_rows, index_select
from graphfeed.ops.rows.read_rows import read_bytes, read_rows
from graphfeed.ops.sampling.cached_edge_values import NOT_CACHED, CachedEdgeValues, read_edges
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, build_high_degree_index
from graphfeed.ops.sampling.labor_sample_hops import labor_sample_hops
from graphfeed.ops.sampling.labor_sample_neighbors import labor_sample_neighbors
from graphfeed.ops.sampling.permute import permute
from graphfeed.ops.sampling.sample_hops import SampledHop, sample_hops
from graphfeed.ops.sampling.sample_negatives import sample_negatives
from graphfeed.ops.sampling.sample_neighbors import Picks, TypedPicks, group_by_type, sample_neighbors
from graphfeed.ops.sampling.temporal_labor_sample_hops import temporal_labor_sample_hops
from graphfeed.ops.sampling.temporal_labor_sample_neighbors import temporal_labor_sample_neighbors
from graphfeed.ops.sampling.temporal_sample_hops import temporal_sample_hops
from graphfeed.ops.sampling.temporal_sample_neighbors import TemporalGraph, temporal_sample_neighbors
from graphfeed.ops.sampling.time_order import (
    TimeOrder,
    as_times,
    link_sources,
    linked_order,
    order_by_time,
    places_in_order,
)
from graphfeed.ops.sampling.weights import cumulate_weights
from graphfeed.ops.structure.compact import Compacted, compact
from graphfeed.ops.structure.counting_sort import assign_slots, count_edges
from graphfeed.ops.structure.csc import (
    Columns,
    check_csc,
    check_edge_types,
    check_joined,
    coo_to_csc,
    expand_indptr,
    indptr_edge_ids,
)
from graphfeed.ops.structure.isin import isin
from graphfeed.ops.structure.match_pairs import match_pairs
from graphfeed.ops.structure.unique import unique_and_compact

__all__ = [
    "NOT_CACHED",
    "POLICIES",
    "CacheSets",
    "CachedEdgeValues",
    "Columns",
    "Compacted",
    "CompletedFuture",
    "Found",
    "HighDegreeIndex",
    "Key",
    "Picks",
    "PolicyState",
    "SampledHop",
    "TemporalGraph",
    "TimeOrder",
    "TypedPicks",
    "as_times",
    "assign_slots",
    "build_high_degree_index",
    "check_csc",
    "check_edge_types",
    "check_joined",
    "clear_policy",
    "clear_sets",
    "compact",
    "coo_to_csc",
    "copy_rows",
    "count_edges",
    "cumulate_weights",
    "delete_from_columns",
    "delete_rows",
    "draw_key",
    "draw_unkeyed",
    "expand_indptr",
    "find_in_sets",
    "find_keys",
    "gather_rows",
    "group_by_type",
    "index_select",
    "indptr_edge_ids",
    "isin",
    "labor_sample_hops",
    "labor_sample_neighbors",
    "link_sources",
    "linked_order",
    "match_pairs",
    "max_uva_threads",
    "new_policy",
    "new_sets",
    "order_by_time",
    "permute",
    "pin_in_place",
    "places_in_order",
    "policy_bytes",
    "read_bytes",
    "read_edges",
    "read_rows",
    "replace_in_sets",
    "replace_keys",
    "sample_hops",
    "sample_negatives",
    "sample_neighbors",
    "seed",
    "set_max_uva_threads",
    "temporal_labor_sample_hops",
    "temporal_labor_sample_neighbors",
    "temporal_sample_hops",
    "temporal_sample_neighbors",
    "unique_and_compact",
]
