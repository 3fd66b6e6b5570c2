"""Checks, synchronization and copies of a graph on a GPU; its mini-batches are tested in `test_graph_kinds.py`."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import SamplingRequest
from tests.ops.emulated_cuda import Cuda, device_of

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


def test_seeds_outside_of_their_type_are_named_by_it(cuda: Cuda) -> None:
    with cuda.running():
        there = typed_graph(plain).to(device_of(cuda))
        seeds = {"user": cuda.put(torch.tensor([29])), "item": cuda.put(torch.tensor([3, 10]))}
        with pytest.raises(ValueError, match=r"seeds of type 'item' must lie in 0 \.\. 9, but holds 10"):
            there.sample_hops(seeds, SamplingRequest([torch.tensor([2])] * 2), [1, 2])


def test_a_graph_that_is_not_pinned_is_refused(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"page-lock it with pin_memory_\(\)"):
        graph(plain).sample_hops(cuda.put(torch.arange(3)), SamplingRequest([torch.tensor([3])]), [1])
