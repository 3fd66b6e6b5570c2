"""`LinkLoader` with samplers of PyG's kind."""

from typing import Any

import pytest
import torch

from graphfeed.pyg import LinkLoader, NegativeSampling, NeighborSampler
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import heterogeneous, homogeneous


class Ends:
    """Gives the ends of the edges without anything around them."""

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        module = import_pyg("torch_geometric.sampler", "tests")
        assert neg_sampling is None or isinstance(neg_sampling, module.NegativeSampling)
        nodes, places = torch.unique(torch.cat([index.row, index.col]), return_inverse=True)
        output = module.SamplerOutput(nodes, nodes[:0], nodes[:0], None)
        if neg_sampling is None:
            output.metadata = (index.input_id, places.view(2, -1), index.label, index.time)
        else:
            rows, columns = places.view(2, -1)
            output.metadata = (index.input_id, rows, columns, columns.flip(0), index.time)
        return output


def test_a_sampler_of_ones_own_is_called_for_the_edges() -> None:
    data = homogeneous()
    batch = next(iter(LinkLoader(data, Ends(), edge_label=torch.arange(200), batch_size=5)))
    assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, :5])
    assert batch.edge_label.tolist() == list(range(5))
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert "e_id" not in batch
    assert "edge_attr" not in batch


def test_it_gets_the_negatives_as_pygs_object() -> None:
    batch = next(iter(LinkLoader(homogeneous(), Ends(), neg_sampling="triplet", batch_size=5)))
    assert torch.equal(batch.dst_neg_index, batch.dst_pos_index.flip(0))


def test_an_own_sampler_becomes_stages() -> None:
    data = homogeneous()
    loader = LinkLoader(data, NeighborSampler(data, [2, 2]), neg_sampling="binary")
    assert "PairNegativeSampler(" in loader.explain()
    assert len(loader) == 200


def test_a_backward_sampler_refuses_negatives_that_need_the_direction_of_edges() -> None:
    data, typed = homogeneous(), heterogeneous()
    sampler = NeighborSampler(data, [2], sample_direction="backward")
    assert len(next(iter(LinkLoader(data, sampler, neg_sampling="binary", batch_size=3))).edge_label) == 6
    with pytest.raises(ValueError, match='neg_sampling with strict=True does not go with sample_direction="backward"'):
        LinkLoader(data, sampler, neg_sampling=NegativeSampling("triplet", strict=True))
    sampler = NeighborSampler(typed, [2], sample_direction="backward")
    edges = (("user", "likes", "item"), None)
    assert len(LinkLoader(typed, sampler, edges)) > 0
    with pytest.raises(ValueError, match="several node types does not go with"):
        LinkLoader(typed, sampler, edges, neg_sampling="binary")


def test_wrong_arguments_are_refused() -> None:
    data = homogeneous()
    with pytest.raises(TypeError, match="sample_from_edges"):
        LinkLoader(data, object())
    with pytest.raises(ValueError, match="custom_cls must be None"):
        LinkLoader(data, Ends(), custom_cls=dict)
