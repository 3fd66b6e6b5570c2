from types import SimpleNamespace

import torch

import graphfeed as gf
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch, as_sampled


def test_its_nodes_and_edges_are_those_of_the_output() -> None:
    edges = {("a", "r", "b"): torch.tensor([3]), ("b", "s", "a"): None}
    batch = SampledMiniBatch(output=SimpleNamespace(node={"a": torch.tensor([1])}, edge=edges))
    assert batch.num_layers() == 1
    assert list(batch.edge_ids(0)) == ["a:r:b"]  # type: ignore[arg-type]
    assert list(batch.node_ids()) == ["a"]  # type: ignore[arg-type]
    assert SampledMiniBatch(output=SimpleNamespace(node=torch.arange(2), edge=None)).num_layers() == 0
    assert SampledMiniBatch(input_nodes=torch.arange(2)).num_layers() == 0


def test_seeds_that_are_nodes_have_an_id_a_number_and_perhaps_a_time() -> None:
    batch = gf.MiniBatch(seeds=torch.tensor([4, 5]), timestamp=torch.tensor([8, 9]))
    batch.input_id = torch.tensor([0, 1])  # type: ignore[attr-defined]
    for report_time in (False, True):
        found = as_sampled(batch, report_time=report_time)
        assert found.of_seeds is not None
        assert found.of_seeds[None]["batch_size"] == 2
        assert (found.of_seeds[None]["seed_time"] is not None) is report_time
        assert found.metadata[0] is found.of_seeds[None]["input_id"]
