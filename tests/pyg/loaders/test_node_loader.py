"""`NodeLoader` with samplers of PyG's kind."""

from typing import Any

import pytest
import torch

from graphfeed.pyg import NeighborSampler, NodeLoader
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import heterogeneous, homogeneous, values_of


class Itself:
    """Gives the seeds, and a self-loop at each with the id 3 in an order of its own."""

    edge_permutation = torch.arange(200).flip(0)

    def sample_from_nodes(self, index: Any) -> Any:
        module, own = import_pyg("torch_geometric.sampler", "tests"), torch.arange(len(index.node))
        noise = torch.rand(1)
        output = module.SamplerOutput(index.node, own, own, torch.full_like(own, 3))
        output.metadata = (index.input_id, index.time)
        output.batch = noise
        return output


def test_a_sampler_of_ones_own_is_called_for_the_seeds() -> None:
    data = homogeneous()
    (batch,) = NodeLoader(data, Itself(), torch.tensor([4, 9]), batch_size=2)
    assert batch.n_id.tolist() == [4, 9]
    assert batch.edge_index.tolist() == [[0, 1], [0, 1]]
    assert batch.e_id.tolist() == [196, 196]
    assert torch.equal(batch.x, data.x[[4, 9]])
    assert torch.equal(batch.edge_attr, data.edge_attr[[196, 196]])
    assert (batch.batch_size, batch.input_id.tolist()) == (2, [0, 1])


def test_what_it_draws_depends_on_the_mini_batch_alone() -> None:
    data = homogeneous()
    found = [[values_of(batch) for batch in NodeLoader(data, Itself(), batch_size=9, seed=1)] for _ in range(2)]
    assert found[0] == found[1]
    assert found[0][0]["batch"] != found[0][1]["batch"]


def test_an_own_sampler_becomes_stages() -> None:
    data = homogeneous()
    loader = NodeLoader(data, NeighborSampler(data, [2, 2]), batch_size=7, num_workers=1)
    assert "NeighborSampler(graph=" in loader.explain()
    assert sum(batch.batch_size for batch in loader) == 60


def test_ids_of_seeds_may_be_given() -> None:
    data = homogeneous()
    loader = NodeLoader(data, NeighborSampler(data, [2]), torch.tensor([4, 9, 2]), input_id=torch.tensor([70, 71, 72]))
    assert [batch.input_id.tolist() for batch in loader] == [[70], [71], [72]]


def test_features_are_fetched_where_it_is_said() -> None:
    data = homogeneous()
    sampler = NeighborSampler(data, [2])
    for said in (True, False, None):
        plan = NodeLoader(data, sampler, num_workers=2, filter_per_worker=said).explain()
        (line,) = [line for line in plan.splitlines() if "FeatureFetcher(" in line]
        assert line.startswith("worker") is (said is not False)


def test_wrong_arguments_are_refused() -> None:
    data = heterogeneous()
    with pytest.raises(TypeError, match="BaseSampler with sample_from_nodes"):
        NodeLoader(data, object(), "user")
    with pytest.raises(ValueError, match="custom_cls must be None"):
        NodeLoader(data, NeighborSampler(data, [2]), "user", custom_cls=dict)
