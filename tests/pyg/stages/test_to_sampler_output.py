import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import ToSamplerOutput
from graphfeed.pyg.stages.to_sampler_output import edge_index_of


def test_a_mini_batch_that_was_not_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="no sampled_subgraphs yet"):
        next(iter(ToSamplerOutput(gf.ItemSampler(gf.ItemSet(3, names="seeds"), 1))))


@pytest.mark.slow  # compiles kernels for them
def test_ids_of_32_bits_become_those_of_64() -> None:
    indptr, indices = torch.tensor([0, 2, 2, 2], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32)
    seeds = gf.ItemSampler(gf.ItemSet(torch.tensor([0]), names="seeds"), 1)
    pipe = seeds.sample_neighbor(gf.fused_csc_sampling_graph(indptr, indices), [-1], only_new=True)
    output = next(iter(ToSamplerOutput(pipe))).output
    assert {part.dtype for part in (output.node, output.row, output.col, output.edge)} == {torch.int64}


def test_rows_of_one_tensor_are_that_tensor() -> None:
    both = torch.arange(6).view(2, 3)
    found = edge_index_of(both[0], both[1])
    assert torch.equal(found, both)
    assert found.data_ptr() == both.data_ptr()
    assert edge_index_of(both[1], both[0]).tolist() == [[3, 4, 5], [0, 1, 2]]
    assert edge_index_of(both[0][:2], both[1][:2]).tolist() == [[0, 1], [3, 4]]
    assert edge_index_of(both[0][:0], both[1][:0]).shape == (2, 0)
