"""Checks, synchronization and copies of a graph on a GPU; its mini-batches are tested in `test_graph_kinds.py`."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import SamplingRequest
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of

NODES, EDGES = 40, 400
EDGE_TYPES = {"user:follows:user": 0, "user:buys:item": 1}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def typed_graph(put: Any) -> gf.FusedCSCSamplingGraph:
    """Return a graph of 30 users and 10 items."""
    torch.manual_seed(1)
    sources = torch.randint(0, 30, (EDGES,))
    destinations, order = torch.randint(0, NODES, (EDGES,)).sort()
    indptr = torch.searchsorted(destinations, torch.arange(NODES + 1))
    return gf.fused_csc_sampling_graph(
        put(indptr),
        put(sources),
        torch.tensor([0, 30, NODES]),
        put((destinations >= 30).to(torch.uint8)),
        {"user": 0, "item": 1},
        EDGE_TYPES,
        edge_attributes={"weight": put(torch.rand(EDGES)), "_ORIGINAL_EDGE_ID": put(order)},
    )


def graph(put: Any) -> gf.FusedCSCSamplingGraph:
    torch.manual_seed(1)
    destinations, order = torch.randint(0, NODES, (EDGES,)).sort()
    indptr = torch.searchsorted(destinations, torch.arange(NODES + 1))
    attributes = {"weight": put(torch.rand(EDGES)), "_ORIGINAL_EDGE_ID": put(order)}
    return gf.fused_csc_sampling_graph(
        put(indptr), put(torch.randint(0, NODES, (EDGES,))), edge_attributes=attributes
    )  # fmt: skip


def by_type(of: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> Any:
    return seeds if of.node_type_to_id is None else {"item": seeds}


@pytest.mark.parametrize("make", [graph, typed_graph])
def test_what_was_sampled_is_not_checked_again(cuda: Cuda, make: Any) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a real GPU does not record this")
    with cuda.running():
        there = make(plain).to(device_of(cuda))
        seeds, fanouts = by_type(there, cuda.put(torch.tensor([0, 9, 3]))), [torch.tensor([2])] * 3
        hops = there.sample_hops(seeds, SamplingRequest(fanouts), [1, 2, 3])
        # Each hop synchronizes for the number of removed edges; reading rows doesn't.
        pairs, feature = cuda.put(torch.randint(0, 10, (50, 2))), gf.TorchBasedFeature(cuda.put(torch.rand(NODES, 7)))
        cuda.waits.clear()
        for hop in hops:
            hop.exclude_edges({"user:buys:item": pairs} if make is typed_graph else pairs)
        assert len(cuda.waits) == 3, cuda.waits
        if make is graph:
            feature.read(hops[0].original_row_node_ids)
            assert len(cuda.waits) == 3, cuda.waits
            # Other ids are checked.
            with pytest.raises(IndexError, match=r"must lie in 0 \.\. 39, but holds 40"):
                feature.read(hops[0].original_row_node_ids + 40 - hops[0].original_row_node_ids.max())


def test_seeds_outside_of_their_type_are_named_by_it(cuda: Cuda) -> None:
    with cuda.running():
        there = typed_graph(plain).to(device_of(cuda))
        seeds = {"user": cuda.put(torch.tensor([29])), "item": cuda.put(torch.tensor([3, 10]))}
        with pytest.raises(ValueError, match=r"seeds of type 'item' must lie in 0 \.\. 9, but holds 10"):
            there.sample_hops(seeds, SamplingRequest([torch.tensor([2])] * 2), [1, 2])


def test_a_graph_that_is_not_pinned_is_refused(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"page-lock it with pin_memory_\(\)"):
        graph(plain).sample_hops(cuda.put(torch.arange(3)), SamplingRequest([torch.tensor([3])]), [1])
