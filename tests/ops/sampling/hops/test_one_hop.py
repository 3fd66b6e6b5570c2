import torch

from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import one_hop_graph, pick_one_hop

INDPTR, INDICES = torch.tensor([0, 3, 3, 5]), torch.tensor([1, 2, 0, 0, 2])
TYPES = torch.tensor([0, 1, 1, 0, 1], dtype=torch.int16)


def test_all_neighbours_are_picked_seed_by_seed() -> None:
    graph = one_hop_graph(INDPTR, None, None, INDICES)
    offsets, positions = pick_one_hop(graph, torch.tensor([2, 1, 0]), torch.tensor([-1]), (5,), Drawing())
    assert offsets.tolist() == [0, 2, 2, 5]
    assert positions.tolist() == [3, 4, 0, 1, 2]


def test_picks_are_not_written_over_by_the_next() -> None:
    graph = one_hop_graph(INDPTR, None, None, INDICES)
    first = pick_one_hop(graph, torch.tensor([0]), torch.tensor([-1]), (5,), Drawing())
    pick_one_hop(graph, torch.tensor([2]), torch.tensor([-1]), (5,), Drawing())
    assert [part.tolist() for part in first] == [[0, 3], [0, 1, 2]]


def test_each_edge_type_has_a_fan_out() -> None:
    graph = one_hop_graph(INDPTR.int(), None, TYPES)
    seeds = torch.tensor([0, 2], dtype=torch.int32)
    offsets, positions = pick_one_hop(graph, seeds, torch.tensor([-1, 1]), (5,), Drawing())
    assert positions[0] == 0
    assert positions[1] in (1, 2)
    assert positions[2:].tolist() == [3, 4]
    assert offsets.tolist() == [0, 2, 4]
