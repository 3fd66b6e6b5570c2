import torch

from graphfeed.ops.sampling.hops.one_hop import OneHop, StaticGraph, pick_on_cpu

GRAPH = StaticGraph(
    torch.tensor([0, 3, 3, 5]), torch.tensor([1, 2, 0, 0, 2]), types=torch.tensor([0, 1, 1, 0, 1], dtype=torch.int16)
)


def all_of(*seeds: int) -> OneHop:
    return OneHop(torch.tensor(seeds), torch.tensor([-1]), (5,))


def test_all_neighbours_are_picked_seed_by_seed() -> None:
    offsets, positions = pick_on_cpu(GRAPH, all_of(2, 1, 0))
    assert offsets.tolist() == [0, 2, 2, 5]
    assert positions.tolist() == [3, 4, 0, 1, 2]


def test_picks_are_not_written_over_by_the_next() -> None:
    first = pick_on_cpu(GRAPH, all_of(0))
    pick_on_cpu(GRAPH, all_of(2))
    assert [part.tolist() for part in first] == [[0, 3], [0, 1, 2]]


def test_each_edge_type_has_a_fan_out() -> None:
    graph = GRAPH._replace(indptr=GRAPH.indptr.int())
    hop = OneHop(torch.tensor([0, 2], dtype=torch.int32), torch.tensor([-1, 1]), (5,))
    offsets, positions = pick_on_cpu(graph, hop)
    assert positions[0] == 0
    assert positions[1] in (1, 2)
    assert positions[2:].tolist() == [3, 4]
    assert offsets.tolist() == [0, 2, 4]
