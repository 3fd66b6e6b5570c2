"""Random operations: neighbour sampling, all hops of a mini-batch, negatives and shuffled orders.

The package also prepares arrays once per graph, such as running sums of weights or edges sorted by time. On the CPU,
neighbours are sampled by programs of small kernels, which `graphfeed.ops.sampling.hops` assembles from the passes in
`graphfeed.ops.cpu.sampling.passes`. The stages that use these operations are in `graphfeed.datapipes`.
"""

from graphfeed.ops.sampling.count_visits import MOST_TOP, Ranked, count_visits
from graphfeed.ops.sampling.draw_places import draw_places
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.group_by_type import TypedPicks, group_by_type
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, build_high_degree_index
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, HopEdges, JoinedHops, SampledHop, SeedTimes
from graphfeed.ops.sampling.hops.pick_edges import LARGEST_WINDOW, OneHop, Picks, bound_edges
from graphfeed.ops.sampling.hops.sample_hops import PreparedHops, sample_hops
from graphfeed.ops.sampling.latest import Cells, TimedEdges, count_earlier, latest_cells
from graphfeed.ops.sampling.negatives import (
    NO_EDGES,
    NO_TYPES,
    EdgeSet,
    Population,
    sample_negative_pairs,
    sample_negatives,
)
from graphfeed.ops.sampling.node_budget import NodeBudget
from graphfeed.ops.sampling.page_rank import MASS, push_mass, shorten_degrees
from graphfeed.ops.sampling.permute import permute
from graphfeed.ops.sampling.random_walks import (
    ACCEPT,
    MOST_STEPS,
    STOP,
    UNIT,
    Walks,
    WalkSteps,
    random_walks,
    walk_chances,
    walk_draws,
    walk_trees,
)
from graphfeed.ops.sampling.sample_neighbors import sample_neighbors
from graphfeed.ops.sampling.time_order import (
    ALWAYS,
    TimeOrder,
    as_times,
    link_sources,
    linked_order,
    order_by_time,
    places_in_order,
)
from graphfeed.ops.sampling.weights import GuidedSums, cumulate_weights, guide_sums

# fmt: off
__all__ = [
    "ACCEPT", "ALWAYS", "LARGEST_WINDOW", "MASS", "MOST_STEPS", "MOST_TOP", "NO_EDGES", "NO_TYPES", "STOP", "UNIT",
    "Cells", "Drawing", "EdgeSet", "Graph", "GuidedSums", "HighDegreeIndex", "HopEdges", "JoinedHops", "NodeBudget",
    "OneHop", "Picks", "Population", "PreparedHops", "Ranked", "SampledHop", "SeedTimes", "TimeOrder", "TimedEdges",
    "TypedPicks", "WalkSteps", "Walks", "as_times", "bound_edges", "build_high_degree_index", "count_earlier",
    "count_visits", "cumulate_weights", "draw_places", "group_by_type", "guide_sums", "latest_cells", "link_sources",
    "linked_order", "order_by_time", "permute", "places_in_order", "push_mass", "random_walks", "sample_hops",
    "sample_negative_pairs", "sample_negatives", "sample_neighbors", "shorten_degrees", "walk_chances", "walk_draws",
    "walk_trees",
]
# fmt: on
