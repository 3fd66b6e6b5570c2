"""Operations that draw: neighbours, all hops of a mini-batch, negatives, shuffled orders.

What they prepare once per graph, such as running sums of weights or the order of time, is here too. Relabelling what
was drawn is in `graphfeed.ops.structure`; stages that draw are in `graphfeed.datapipes`.
"""

from graphfeed.ops.sampling.cached_edge_values import NOT_CACHED, CachedEdgeValues, read_edges
from graphfeed.ops.sampling.draw_places import draw_places
from graphfeed.ops.sampling.guides import GuidedSums, guide_sums
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, build_high_degree_index
from graphfeed.ops.sampling.labor_sample_hops import labor_sample_hops
from graphfeed.ops.sampling.labor_sample_neighbors import labor_sample_neighbors
from graphfeed.ops.sampling.permute import permute
from graphfeed.ops.sampling.random_walks import random_walks
from graphfeed.ops.sampling.sample_by_budget import sample_by_budget
from graphfeed.ops.sampling.sample_hops import SampledHop, sample_hops
from graphfeed.ops.sampling.sample_negative_pairs import sample_negative_pairs
from graphfeed.ops.sampling.sample_negatives import sample_negatives
from graphfeed.ops.sampling.sample_neighbors import Picks, TypedPicks, group_by_type, sample_neighbors
from graphfeed.ops.sampling.sample_new_hops import sample_new_hops
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
from graphfeed.ops.sampling.typed_labor_sample_hops import typed_labor_sample_hops
from graphfeed.ops.sampling.typed_sample_hops import TypedEdges, TypedGraph, TypedHop, typed_sample_hops
from graphfeed.ops.sampling.typed_temporal_labor_sample_hops import typed_temporal_labor_sample_hops
from graphfeed.ops.sampling.typed_temporal_sample_hops import typed_temporal_sample_hops
from graphfeed.ops.sampling.weights import cumulate_weights

# fmt: off
__all__ = [
    "NOT_CACHED", "CachedEdgeValues", "GuidedSums", "HighDegreeIndex", "Picks", "SampledHop", "TemporalGraph",
    "TimeOrder", "TypedEdges", "TypedGraph", "TypedHop", "TypedPicks", "as_times", "build_high_degree_index",
    "cumulate_weights", "draw_places", "group_by_type", "guide_sums", "labor_sample_hops", "labor_sample_neighbors",
    "link_sources", "linked_order", "order_by_time", "permute", "places_in_order", "random_walks", "read_edges",
    "sample_by_budget", "sample_hops", "sample_negative_pairs", "sample_negatives", "sample_neighbors",
    "sample_new_hops", "temporal_labor_sample_hops", "temporal_labor_sample_neighbors", "temporal_sample_hops",
    "temporal_sample_neighbors", "typed_labor_sample_hops", "typed_sample_hops",
    "typed_temporal_labor_sample_hops", "typed_temporal_sample_hops",
]
# fmt: on
