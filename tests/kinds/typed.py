"""A graph with three node types, and the seeds and fan-outs of a mini-batch."""

import torch

from graphfeed import ops


def random_graph(num_nodes: int = 600) -> ops.HopGraph:
    """Return a graph of three node types and five edge types; the middle type is no type's source."""
    chance = torch.Generator().manual_seed(1)
    first_ids = torch.tensor([0, num_nodes // 2, num_nodes // 2 + 50, num_nodes])
    ends = torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 2]])
    kinds = torch.randint(0, 5, (20_000,), generator=chance)
    sources, destinations = (
        first_ids[side[kinds]] + (torch.rand(20_000, generator=chance) * (first_ids.diff()[side[kinds]])).long()
        for side in ends.T
    )
    order = torch.argsort(destinations * 5 + kinds)
    indptr, _, _ = ops.coo_to_csc(sources, destinations, num_nodes)
    return ops.HopGraph(indptr, sources[order], kinds[order].to(torch.uint8), first_ids, ends, torch.arange(5))


SEEDS = [torch.arange(0, 300, 7), torch.tensor([3, 3]), torch.tensor([], dtype=torch.int64)]


HOPS = [torch.tensor([4]), torch.tensor([1, 2, 3, 0, -1])]
