"""Sampling graphs, the subgraphs sampled from them, and how graphs are built, saved and shared.

`SamplingGraph` is the interface of a graph, and implements all operations of samplers with one-hop sampling; kinds of
graphs are its subclasses. Source files of data sets are read in `graphfeed.storage.datasets`, and
DGL's graphs are converted in `graphfeed.interop`.
"""

from graphfeed.storage.graph.assign import (
    METHODS,
    assign_by_ldg,
    assign_by_metis,
    assign_nodes,
    ldg_memory,
    stacked_assignment,
)
from graphfeed.storage.graph.build import add_reverse_edges, edge_lists, from_coo, to_coo
from graphfeed.storage.graph.by_type import ByType, TensorOrDict
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID, check_shapes, count_edge_rows
from graphfeed.storage.graph.files.load_graph import load_from_shared_memory, load_graph, verify_graph
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.layer_data import PyGLayerData, PyGLayerHeteroData, layer_columns
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph, exclude_from_each
from graphfeed.storage.graph.sampling.compaction import (
    columns_by_type,
    compact_csc_format,
    compact_hop,
    merge_sources,
    unique_and_compact_csc_formats,
)
from graphfeed.storage.graph.sampling.first_meetings import nodes_met
from graphfeed.storage.graph.sampling.graph_files import SHARE, kernel_columns
from graphfeed.storage.graph.sampling.joined_hops import join_hops
from graphfeed.storage.graph.sampling.latest import has_latest, latest_of
from graphfeed.storage.graph.sampling.negatives import NegativeQuery, NodeWeights, check_query, negative_pairs_of
from graphfeed.storage.graph.sampling.one_hop import group_edges, in_hop_order, open_seeds, pick_hop, stack_trees
from graphfeed.storage.graph.sampling.page_rank import check_page_rank
from graphfeed.storage.graph.sampling.rows import Picked
from graphfeed.storage.graph.sampling.temporal_sampling import edge_times_of, stack_seed_times
from graphfeed.storage.graph.sampling_graph import SamplingGraph, Way
from graphfeed.storage.graph.sampling_request import (
    Draws,
    Hop,
    HopTime,
    SamplingRequest,
    Seeds,
    Strategy,
    TemporalQuery,
    draws_of,
    fanout_tensor,
    one_draw,
    parse_seeds,
)
from graphfeed.storage.graph.type_names import (
    CANONICAL_ETYPE_DELIMITER,
    EdgeType,
    NodeType,
    by_type_name,
    convert_to_hetero,
    ends_of,
    etype_str_to_tuple,
    etype_tuple_to_str,
    first_ids,
    from_type_dict,
    match_types,
    revert_to_homo,
    seed_type_str_to_ntypes,
    split_by_type,
    to_type_dict,
    type_name,
    with_all_types,
)
from graphfeed.storage.graph.walk_request import MOST_WALKS, WalkRequest

__all__ = [
    "CANONICAL_ETYPE_DELIMITER", "METHODS", "MOST_WALKS", "ORIGINAL_EDGE_ID", "SHARE", "ByType", "CSCFormatBase",
    "Draws", "EdgeType", "FusedCSCSamplingGraph", "GraphArrays", "Hop", "HopTime", "NegativeQuery", "NodeType",
    "NodeWeights", "Picked", "PyGLayerData", "PyGLayerHeteroData", "SampledSubgraph", "SamplingGraph",
    "SamplingRequest", "Seeds", "Strategy", "TemporalQuery", "TensorOrDict", "WalkRequest", "Way", "add_reverse_edges",
    "assign_by_ldg", "assign_by_metis", "assign_nodes", "by_type_name", "check_page_rank", "check_query",
    "check_shapes", "columns_by_type", "compact_csc_format", "compact_hop", "convert_to_hetero", "count_edge_rows",
    "draws_of", "edge_lists", "edge_times_of", "ends_of", "etype_str_to_tuple", "etype_tuple_to_str",
    "exclude_from_each", "fanout_tensor", "first_ids", "from_coo", "from_type_dict", "fused_csc_sampling_graph",
    "group_edges", "has_latest", "in_hop_order", "join_hops", "kernel_columns", "latest_of", "layer_columns",
    "ldg_memory", "load_from_shared_memory", "load_graph", "match_types", "merge_sources", "negative_pairs_of",
    "nodes_met", "one_draw", "open_seeds", "parse_seeds", "pick_hop", "revert_to_homo", "seed_type_str_to_ntypes",
    "split_by_type", "stack_seed_times", "stack_trees", "stacked_assignment", "to_coo", "to_type_dict", "type_name",
    "unique_and_compact_csc_formats", "verify_graph", "with_all_types",
]  # fmt: skip
