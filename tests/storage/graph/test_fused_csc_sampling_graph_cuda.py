"""A graph whose arrays lie on a GPU, under the stages: the mini-batches are those of the CPU."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of

NODES, EDGES = 40, 400
EDGE_TYPES = {"user:follows:user": 0, "user:buys:item": 1}


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def typed_graph(put: Any) -> gf.FusedCSCSamplingGraph:
    """Make a graph of 30 users and 10 items."""
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


def homogeneous(put: Any, device: str, **options: Any) -> gf.Datapipe:
    items = gf.ItemSet((torch.randint(0, NODES, (20, 2)), torch.arange(20)), names=("seeds", "labels"))
    features = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(put(torch.rand(NODES, 7)))})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=6, shuffle=True).copy_to(device)
    sampled = pipe.sample_layer_neighbor if options.pop("layer", False) else pipe.sample_neighbor
    return sampled(graph(put), [4, -1, 3], **options).fetch_feature(features, node_feature_keys=["feat"])


def heterogeneous(put: Any, device: str, **options: Any) -> gf.Datapipe:
    items = gf.HeteroItemSet({"item": gf.ItemSet(torch.arange(10), names="seeds")})
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=4, shuffle=True).copy_to(device)
    sampled = pipe.sample_layer_neighbor if options.pop("layer", False) else pipe.sample_neighbor
    return sampled(typed_graph(put), [torch.tensor([2, 3]), torch.tensor([-1, 2])], **options)


def edge_prediction(put: Any, device: str, **options: Any) -> gf.Datapipe:
    items = gf.ItemSet(torch.randint(0, NODES, (20, 2)), names="seeds")
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=6).copy_to(device)
    pipe = pipe.sample_uniform_negative(graph(put), 3).sample_neighbor(graph(put), [-1, 9], **options)
    return pipe.exclude_seed_edges(include_reverse_edges=True)


def by_type(of: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> Any:
    return seeds if of.node_type_to_id is None else {"item": seeds}


def batches(pipe: gf.Datapipe) -> Iterator[gf.MiniBatch]:
    yield from pipe.with_seed(3)


def values(batch: gf.MiniBatch) -> list[Any]:
    return [tensor.tolist() for tensor in tensors_in(batch)]


@pytest.mark.parametrize("make", [graph, typed_graph])
def test_a_graph_moves_to_the_device(cuda: Cuda, make: Any) -> None:
    expected = make(plain)
    with cuda.running():
        moved = make(plain).to(device_of(cuda))
        assert all(map(cuda.is_there, tensors_in(moved.fields())))
        moved.check()
        moved.cumulative_weights("weight")
        assert moved.num_edges == expected.num_edges
        assert moved.num_nodes == expected.num_nodes
        seeds = torch.tensor([0, 9, 3])
        fanouts = [torch.tensor([2])] * 2
        mine = moved.sample_hops(by_type(moved, cuda.put(seeds)), SamplingRequest(fanouts, probs_name="weight"), [1, 2])
        its = expected.sample_hops(by_type(expected, seeds), SamplingRequest(fanouts, probs_name="weight"), [1, 2])
        assert all(map(cuda.is_there, tensors_in(mine)))
        assert [part.tolist() for part in tensors_in(mine)] == [part.tolist() for part in tensors_in(its)]


@pytest.mark.parametrize("deduplicate", [True, False])
def test_edges_are_predicted_as_on_the_cpu(cuda: Cuda, deduplicate: bool) -> None:
    torch.manual_seed(0)
    expected = [values(batch) for batch in batches(edge_prediction(plain, "cpu", deduplicate=deduplicate))]
    torch.manual_seed(0)
    with cuda.running():
        found = list(batches(edge_prediction(cuda.put, device_of(cuda), deduplicate=deduplicate)))
        assert all(cuda.is_there(tensor) for batch in found for tensor in tensors_in(batch))
        assert [values(batch) for batch in found] == expected


@pytest.mark.parametrize("make", [homogeneous, heterogeneous])
@pytest.mark.parametrize(
    "options",
    [{}, {"prob_name": "weight"}, {"replace": True}, {"layer": True}, {"layer": True, "prob_name": "weight"}],
    ids=str,
)
def test_minibatches_are_those_of_the_cpu(cuda: Cuda, make: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    expected = [values(batch) for batch in batches(make(plain, "cpu", **options))]
    torch.manual_seed(0)
    with cuda.running():
        found = list(batches(make(cuda.put, device_of(cuda), **options)))
        assert all(cuda.is_there(tensor) for batch in found for tensor in tensors_in(batch))
        assert [values(batch) for batch in found] == expected
    assert len(expected) > 1


@pytest.mark.parametrize("named", [True, False])
def test_edges_are_excluded_as_on_the_cpu(cuda: Cuda, named: bool) -> None:
    pairs = torch.randint(0, NODES, (300, 2))

    def exclude(put: Any) -> list[Any]:
        hop = graph(put).sample_neighbors(put(torch.arange(10)), torch.tensor([-1]), key=5)
        hop.original_column_node_ids = hop.original_column_node_ids if named else None
        return list(tensors_in(hop.exclude_edges(put(pairs))))

    expected = exclude(plain)
    with cuda.running():
        found = exclude(cuda.put)
    assert len(expected[1]) < int(graph(plain).csc_indptr[10])
    assert all(map(cuda.is_there, found))
    assert [tensor.tolist() for tensor in found] == [tensor.tolist() for tensor in expected]


@pytest.mark.parametrize("options", [{}, {"prob_name": "weight"}], ids=str)
def test_pinned_arrays_are_read_where_they_lie(cuda: Cuda, options: dict[str, Any]) -> None:
    """The graph and the features stay in pinned memory of the CPU; the seeds are on the GPU."""
    torch.manual_seed(0)
    expected = [values(batch) for batch in batches(homogeneous(plain, "cpu", **options))]
    torch.manual_seed(0)
    with cuda.running():
        found = list(batches(homogeneous(cuda.pin, device_of(cuda), **options)))
        assert all(cuda.is_there(tensor) for batch in found for tensor in tensors_in(batch))
        assert [values(batch) for batch in found] == expected


@pytest.mark.parametrize("make", [graph, typed_graph])
def test_what_was_sampled_is_not_checked_again(cuda: Cuda, make: Any) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a GPU does not tell")
    with cuda.running():
        there = make(plain).to(device_of(cuda))
        seeds, fanouts = by_type(there, cuda.put(torch.tensor([0, 9, 3]))), [torch.tensor([2])] * 3
        hops = there.sample_hops(seeds, SamplingRequest(fanouts), [1, 2, 3])
        # Each hop tells how many edges it loses, and rows just come.
        pairs, feature = cuda.put(torch.randint(0, 10, (50, 2))), gf.TorchBasedFeature(cuda.put(torch.rand(NODES, 7)))
        cuda.waits.clear()
        for hop in hops:
            hop.exclude_edges({"user:buys:item": pairs} if make is typed_graph else pairs)
        assert len(cuda.waits) == 3, cuda.waits
        if make is graph:
            feature.read(hops[0].original_row_node_ids)
            assert len(cuda.waits) == 3, cuda.waits
            # Other ids are.
            with pytest.raises(IndexError, match=r"must lie in 0 \.\. 39, but holds 40"):
                feature.read(hops[0].original_row_node_ids + 40 - hops[0].original_row_node_ids.max())


def test_seeds_outside_of_their_type_are_named_by_it(cuda: Cuda) -> None:
    with cuda.running():
        there = typed_graph(plain).to(device_of(cuda))
        seeds = {"user": cuda.put(torch.tensor([29])), "item": cuda.put(torch.tensor([3, 10]))}
        with pytest.raises(ValueError, match=r"seeds of type 'item' must lie in 0 \.\. 9, but holds 10"):
            there.sample_hops(seeds, SamplingRequest([torch.tensor([2])] * 2), [1, 2])
