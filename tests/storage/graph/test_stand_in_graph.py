import torch

import graphfeed as gf
from graphfeed.storage.graph import ByType, StandInGraph


class InNeighbors(StandInGraph[gf.FusedCSCSamplingGraph]):
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> gf.SampledSubgraph:
        return self.graph.sample_neighbors(seeds, torch.tensor([-1]), replace, probs_name, key=key)


def test_a_stand_in_is_as_large_as_its_graph_and_samples_in_its_own_way() -> None:
    graph = gf.from_coo((torch.tensor([1, 2, 0]), torch.tensor([0, 0, 2])), num_nodes=3)
    stand_in = InNeighbors(graph)
    assert (stand_in.num_nodes, stand_in.num_edges) == (graph.num_nodes, graph.num_edges) == (3, 3)
    sampled = stand_in.sample_neighbors(torch.tensor([0]), torch.tensor([1]))
    assert sampled.sampled_csc.indices.numel() == graph.in_subgraph(torch.tensor([0])).sampled_csc.indices.numel()
