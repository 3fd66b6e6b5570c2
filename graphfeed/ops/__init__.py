"""HOW: pure functions on arrays, one file an operation; they know nothing of stages, loaders or files."""

from graphfeed.ops.compact import Compacted, compact
from graphfeed.ops.csc import Columns, check_csc, check_edge_types, coo_to_csc, expand_indptr
from graphfeed.ops.gather import gather_rows
from graphfeed.ops.match_pairs import match_pairs
from graphfeed.ops.permute import permute
from graphfeed.ops.random import Key
from graphfeed.ops.sample_layers import Layer, sample_layers
from graphfeed.ops.sample_neighbors import Picks, TypedPicks, group_by_type, sample_neighbors
from graphfeed.ops.weights import cumulate_weights

__all__ = [
    "Columns",
    "Compacted",
    "Key",
    "Layer",
    "Picks",
    "TypedPicks",
    "check_csc",
    "check_edge_types",
    "compact",
    "coo_to_csc",
    "cumulate_weights",
    "expand_indptr",
    "gather_rows",
    "group_by_type",
    "match_pairs",
    "permute",
    "sample_layers",
    "sample_neighbors",
]
