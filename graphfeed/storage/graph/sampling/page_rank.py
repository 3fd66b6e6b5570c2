"""Personalized PageRank: in one call on a graph in memory, or with one hop for each round."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops.arguments import NOTHING, brief, check_count, check_known
from graphfeed.ops.sampling import MASS, MOST_TOP, Ranked, shorten_degrees
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling.graph_files import is_by_page, kernel_columns
from graphfeed.storage.graph.sampling.in_edges import read_columns, type_bounds
from graphfeed.storage.graph.sampling.walks import check_on_cpu, check_starts
from graphfeed.storage.graph.type_names import first_ids, match_types, to_type_dict

if TYPE_CHECKING:
    from graphfeed.storage.graph.sampling_graph import SamplingGraph

Ints = NDArray[np.int64]


def rank_nodes(
    graph: "SamplingGraph", seeds: ByType, top: int, alpha: float, bound: float, *, per_type: bool
) -> Ranked | dict[str, Ranked]:
    """Return the result of `SamplingGraph.page_rank`."""
    check_page_rank(top, alpha, bound)
    starts, sizes = open_seeds(graph, seeds)
    groups = type_bounds(graph) if per_type else NOTHING
    ranked = graph.push(starts, top, round(alpha * 2**31), max(round(bound * MASS), 1), groups)
    return split_ranked(graph, ranked, sizes, per_type=per_type) if graph.edge_types else ranked


def open_seeds(graph: "SamplingGraph", seeds: ByType) -> tuple[torch.Tensor, dict[str | None, int]]:
    """Return seeds as ids in the whole graph (int64), and the number of seeds of each given type, in its order."""
    parts, sizes = match_types("seeds", seeds, graph.num_nodes), to_type_dict(graph.num_nodes)
    check_known("seeds", parts, sizes, "node type")
    firsts = first_ids(graph.num_nodes)
    given = {name: check_starts(parts[name], sizes[name]) for name in sizes if name in parts}
    check_on_cpu("pushes of PageRank", *given.values())
    own = {name: ids.numpy() + firsts[name] for name, ids in given.items()}
    starts = torch.from_numpy(np.concatenate([*own.values(), NOTHING.numpy()]))
    return starts, {name: len(ids) for name, ids in own.items()}


def split_ranked(
    graph: "SamplingGraph", ranked: Ranked, num_seeds: dict[str | None, int], *, per_type: bool
) -> dict[str, Ranked]:
    """Return the best nodes by edge type, "source:ppr:seed", as ids in their types."""
    bounds, types = type_bounds(graph).numpy(), list(to_type_dict(graph.num_nodes))
    nodes, values = ranked.nodes.numpy(), ranked.values.numpy()
    rows = np.repeat(np.arange(len(ranked.indptr) - 1), np.diff(ranked.indptr.numpy())) // (
        len(types) if per_type else 1
    )
    found, first = {}, 0
    for seed_type, size in num_seeds.items():
        for number, name in enumerate(types):
            own = (rows >= first) & (rows < first + size) & (nodes >= bounds[number]) & (nodes < bounds[number + 1])
            indptr = np.searchsorted(rows[own], np.arange(first, first + size + 1))
            parts = indptr, nodes[own] - bounds[number], values[own]
            found[f"{name}:ppr:{seed_type}"] = Ranked(*map(torch.from_numpy, parts))
        first += size
    return found


def rank_in_memory(
    graph: GraphArrays, seeds: torch.Tensor, top: int, alpha: int, bound: int, groups: torch.Tensor
) -> Ranked:
    """Return the result of `ops.push_mass`."""
    check_on_cpu("pushes of PageRank", graph.indices)
    given = {"groups": groups, "short_degrees": short_degrees(graph)}
    return ops.push_mass(kernel_columns(graph)[0], graph.indices, seeds, top, alpha, bound, **given)[0]


def short_degrees(graph: GraphArrays) -> torch.Tensor:
    """Return the result of `ops.sampling.shorten_degrees`; nothing if the graph is read by page or on a GPU."""
    if is_by_page(graph) or not graph.csc_indptr.is_cpu:
        return NOTHING

    def shorten() -> tuple[torch.Tensor]:
        return (shorten_degrees(kernel_columns(graph)[0]),)

    return graph.cached("short degrees", (graph.csc_indptr,), shorten)[0]  # type: ignore[no-any-return]


def rank_by_hops(
    graph: "SamplingGraph", seeds: torch.Tensor, top: int, alpha: int, bound: int, groups: torch.Tensor
) -> Ranked:
    """Return the result of `ops.push_mass` by reading the in-edges of all nodes that a round may push in one hop."""
    bounds = type_bounds(graph).numpy()
    size = int(bounds[-1])
    state = PushState(size, alpha, bound, seeds.numpy())
    while len(reached := state.may_push()):
        nodes = np.unique(reached % size)
        state.push(nodes, *read_columns(graph, nodes))
    # Only without `groups`, all nodes are in one.
    firsts = groups.numpy()[:-1] if len(groups) else bounds[:1]
    seed_numbers, nodes = np.divmod(state.keys, size)
    rows = seed_numbers * len(firsts) + np.searchsorted(firsts, nodes, side="right") - 1
    return take_best(rows, nodes, state.scores, len(seeds) * len(firsts), top)


class PushState:
    """The mass of PageRank at the nodes that seeds have reached, moved in rounds by pushes against the edges.

    A node that was reached by a seed has a residual, the mass to be pushed, and a score, the mass that stays. A round
    pushes the residuals of all nodes where they are at least `bound` times the in-degree. Arrays are int64.

    Attributes:
        keys: A number for each pair of a seed and a node that it has reached, `seed_number * size + node`, ascending.
        residuals: Residual of each pair.
        scores: Score of each pair.
    """

    def __init__(self, size: int, alpha: int, bound: int, seeds: Ints) -> None:
        self.size, self.alpha, self.bound = size, alpha, bound
        self.keys = np.arange(len(seeds)) * size + seeds
        self.residuals = np.full(len(seeds), MASS)
        self.scores = np.zeros_like(self.residuals)
        # The nodes whose in-edges were read, and their degrees.
        self.known, self.degrees = np.empty(0, np.int64), np.empty(0, np.int64)

    def may_push(self) -> Ints:
        """Return the keys of the pairs to push, those of nodes with unknown degrees included."""
        return self.keys[self.positions_to_push()]

    def positions_to_push(self) -> Ints:
        positions = np.flatnonzero(self.residuals >= self.bound)
        # The degree of a node that was never read is taken to be 0.
        degrees = look_up(self.known, self.degrees, self.keys[positions] % self.size)
        return positions[self.residuals[positions] >= self.bound * np.maximum(degrees, 1)]

    def push(self, nodes: Ints, indptr: Ints, sources: Ints) -> None:
        """Push the residuals of the pairs of some nodes, given the in-edges of these nodes."""
        self.known, first = np.unique(np.concatenate([self.known, nodes]), return_index=True)
        self.degrees = np.concatenate([self.degrees, np.diff(indptr)])[first]
        pushed = self.positions_to_push()
        columns = np.searchsorted(nodes, self.keys[pushed] % self.size)
        counts = np.diff(indptr)[columns]
        shares = self.shares_of(self.residuals[pushed], counts)
        self.scores[pushed] += self.residuals[pushed] - shares * counts
        self.residuals[pushed] = 0
        # The positions of the in-edges of all pushed nodes.
        places = np.arange(counts.sum()) + np.repeat(indptr[:-1][columns] - np.cumsum(counts) + counts, counts)
        seed_parts = self.keys[pushed] // self.size * self.size
        self.add(np.repeat(seed_parts, counts) + sources[places], np.repeat(shares, counts))

    def shares_of(self, residuals: Ints, counts: Ints) -> Ints:
        """Return the mass that each in-neighbour of a node gets, after a share has stayed at the node."""
        amounts = residuals.astype(np.uint64)
        stays = np.maximum(amounts * np.uint64(self.alpha) >> np.uint64(31), np.uint64(1))
        shares: Ints = (amounts - stays).astype(np.int64) // np.maximum(counts, 1) * (counts > 0)
        return shares

    def add(self, keys: Ints, residuals: Ints) -> None:
        """Add residuals to pairs, which may be new or given several times."""
        before = len(self.keys)
        self.keys, owners = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        # Sums of up to 2**32 are exact in float64.
        added = np.concatenate([self.residuals, residuals])
        self.residuals = np.bincount(owners, added, len(self.keys)).astype(np.int64)
        self.scores = np.bincount(owners[:before], self.scores, len(self.keys)).astype(np.int64)


def check_page_rank(top: int, alpha: float, bound: float) -> None:
    """Raise unless the parameters are valid."""
    check_count("top", top, 1, MOST_TOP)
    if not 0.001 <= alpha <= 1:
        raise ValueError(f"alpha must be in 0.001 .. 1, but is {brief(alpha)}")
    if not 0 < bound <= 1:
        raise ValueError(f"bound must be above 0 and at most 1, but is {brief(bound)}")


def look_up(known: Ints, values: Ints, wanted: Ints) -> Ints:
    """Return the values of known numbers, which ascend; 0 for others."""
    if not len(known):
        return np.zeros_like(wanted)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, values[places], 0)


def take_best(rows: Ints, nodes: Ints, scores: Ints, num_rows: int, top: int) -> Ranked:
    """Return the nodes with the highest scores of each row."""
    order = np.lexsort((nodes, -scores, rows))
    order = order[scores[order] > 0]
    starts = np.searchsorted(rows[order], np.arange(num_rows))
    order = order[np.arange(len(order)) - starts[rows[order]] < top]
    indptr = np.searchsorted(rows[order], np.arange(num_rows + 1))
    return Ranked(*map(torch.from_numpy, (indptr, nodes[order], scores[order])))
