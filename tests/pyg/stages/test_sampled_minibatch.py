from types import SimpleNamespace
from typing import Any

import torch

import graphfeed as gf
from graphfeed.pyg import NeighborLoader
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch, as_sampled
from tests.pyg.neighborhood import homogeneous, values_of


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


def drop_some(output: Any) -> Any:
    kept = torch.rand(len(output.row)) < 0.5
    output.row, output.col, output.edge = output.row[kept], output.col[kept], output.edge[kept]
    return output


def test_a_function_of_the_output_comes_before_fetching_and_its_draws_depend_on_the_mini_batch_alone() -> None:
    data, found = homogeneous(), []
    for num_workers in (0, 1, 3):
        options: dict[str, Any] = {"num_workers": num_workers, "seed": 2, "batch_size": 20}
        with NeighborLoader(data, [3], transform_sampler_output=drop_some, **options) as loader:
            batches = list(loader)
        assert all(torch.equal(batch.edge_attr, data.edge_attr[batch.e_id]) for batch in batches)
        found.append([values_of(batch) for batch in batches])
    assert found[0] == found[1] == found[2]
