"""Sample nodes of each type by how well they are joined to those that were sampled before."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import check_count
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.hops.hop_graph import HopGraph, check_graph, check_seeds
from graphfeed.ops.sampling.hops.one_hop import one_hop_graph, pick_runs

MOST_NEIGHBORS = 50
"""How many edges of one type to one node count; of more, so many are picked at random."""


def sample_by_budget(
    graph: HopGraph, seeds: Sequence[torch.Tensor], num_samples: Sequence[Sequence[int]], keys: Sequence[int]
) -> list[torch.Tensor]:
    """Return the seeds and nodes sampled around them, so many of each type in each hop (HGSampling).

    Each node that was sampled shares one point for each edge type among its neighbours that were not; that is their
    score. A hop draws nodes of each type one after the other, without replacement, with probabilities in proportion to
    the squares of their scores (Hu and others: Heterogeneous graph transformer, WWW 2020). So each type has its share,
    and those nodes are likely that have many edges to the others. If a node has more than 50 in-edges of a type, 50 of
    them are picked at random. The cost is that of a look at these edges of each node.

    Args:
        graph: The graph, on the CPU; its weights have no effect.
        seeds: Node ids inside their type, by node type, of the dtype of `indices`.
        num_samples: For each hop, the number of nodes of each node type.
        keys: The key of each hop (`Key.at`).

    Returns:
        Ids inside their type, int64, by node type: the seeds as they were given, then the nodes of each hop. No node is
        sampled twice.

    Raises:
        TypeError: A tensor has another dtype, or a number is no whole one.
        ValueError: A seed lies outside of its type, a number is negative, there is not one for each type or not a key
            for each hop, or the arrays are not those of a graph.
    """
    first_ids = check_budget(graph, seeds, num_samples, keys)
    sizes = first_ids.diff()
    budget = Budget(
        graph, first_ids, torch.cat([part.long() + first for part, first in zip(seeds, first_ids, strict=False)])
    )
    parts: list[list[torch.Tensor]] = [[part.long()] for part in seeds]
    for numbers, key in zip(num_samples, keys, strict=True):
        drawn = budget.draw(torch.minimum(torch.tensor(numbers, dtype=torch.int64), sizes), key)
        for own, part, first in zip(parts, drawn, first_ids.tolist(), strict=False):
            own.append(part - first)
    return [torch.cat(own) for own in parts]


def check_budget(
    graph: HopGraph, seeds: Sequence[torch.Tensor], num_samples: Sequence[Sequence[int]], keys: Sequence[int]
) -> torch.Tensor:
    """Return the first id of each node type, or raise unless all arguments fit together."""
    check_graph(graph)
    check_seeds(graph, seeds)
    assert graph.first_ids is not None
    if len(keys) != len(num_samples):
        raise ValueError(f"keys must hold {len(num_samples)} numbers, one per hop, but holds {len(keys)}")
    kinds = graph.first_ids.numel() - 1
    for hop, numbers in enumerate(num_samples):
        if len(numbers) != kinds:
            raise ValueError(f"num_samples[{hop}] must hold {kinds} numbers, but holds {len(numbers)}")
        for number in numbers:
            check_count(f"num_samples[{hop}]", number, 0)
    return graph.first_ids.contiguous()


class Budget:
    """The nodes that were met, with their scores.

    Args:
        graph: The graph.
        first_ids: The first id of each node type, and the number of nodes.
        seeds: Ids of the graph.
    """

    def __init__(self, graph: HopGraph, first_ids: torch.Tensor, seeds: torch.Tensor) -> None:
        self.module = kernels("sampling.sample_by_budget", seeds)
        assert graph.types is not None
        self.arrays = one_hop_graph(graph.indptr, None, graph.types, graph.indices)
        self.graph, self.first_ids, self.newest = graph, first_ids, seeds
        self.fanouts = torch.full((max(graph.num_types, 2),), MOST_NEIGHBORS)
        self.known: Any = self.module.Known(*empty_table(0), torch.zeros(1, dtype=torch.int64))
        self.make_room(seeds.numel())
        self.module.enter_sampled(seeds, self.known)

    def make_room(self, more: int) -> None:
        """Make room for some nodes more."""
        old, count = self.known, int(self.known.count[0])
        if old.nodes.numel() < count + more:
            self.known = self.module.Known(*empty_table(2 * (count + more)), torch.zeros(1, dtype=torch.int64))
            self.module.enter_again(old.nodes[:count], old.scores[:count], self.known)

    def draw(self, wanted: torch.Tensor, key: int) -> Sequence[torch.Tensor]:
        """Draw so many nodes of each type; return their ids in the graph, by type."""
        runs, positions = pick_runs(self.arrays, self.newest, self.fanouts, key)
        neighbors = take_rows(self.graph.indices, positions).long()
        self.make_room(neighbors.numel())
        self.module.share_scores(runs, neighbors, self.known)
        size, kinds = int(self.known.count[0]), wanted.numel()
        scratch = (torch.empty(length, dtype=torch.int64) for length in (size, kinds + 1, size, size + 1))
        out, counts = torch.empty(int(wanted.sum()), dtype=torch.int64), torch.zeros(kinds, dtype=torch.int64)
        self.module.draw_hop(self.first_ids, wanted, key, self.known, self.module.Draws(*scratch), out, counts)
        self.newest = out[: int(counts.sum())]
        return torch.split(self.newest, counts.tolist())


def empty_table(size: int) -> tuple[torch.Tensor, ...]:
    """Return the keys and places of a hash table for so many nodes, and room for their ids and scores."""
    slots = 1 << max(6, (2 * size).bit_length())
    return (
        torch.full((slots,), -1), torch.empty(slots, dtype=torch.int64),
        torch.empty(size, dtype=torch.int64), torch.empty(size, dtype=torch.int64),
    )  # fmt: skip
