"""What a graph on a GPU checks, waits for and keeps copies of; its mini-batches are in `test_graph_kinds.py`."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage.graph.sampling import gpu_graph_cache
from graphfeed.storage.graph.sampling.gpu_graph_cache import GPUGraphCache, cached_graph_for
from graphfeed.storage.graph.sampling.one_hop import EdgeArrays
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests.at_once import by_two_threads
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


def by_type(of: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> Any:
    return seeds if of.node_type_to_id is None else {"item": seeds}


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


@contextmanager
def pinned_memory(cuda: Cuda) -> Iterator[Any]:
    """Yield what puts tensors in pinned memory, while the device is found."""
    with cuda.running():
        yield cuda.pin


def column(own: gf.FusedCSCSamplingGraph, node: int) -> tuple[int, int]:
    return int(own.csc_indptr[node]), int(own.csc_indptr[node + 1])


@settings(max_examples=20)
@given(
    requests=st.lists(st.lists(st.integers(0, NODES - 1), max_size=15), max_size=8),
    size=st.integers(1, 150),
    threshold=st.integers(1, 3),
)
def test_columns_are_copied_when_they_were_asked_for_often(
    cuda: Cuda, requests: list[list[int]], size: int, threshold: int
) -> None:
    """The slow version: a count for each node, and columns in order of appearance until one finds no room."""
    own = graph(plain)
    counts, copied, used, full = [0] * NODES, dict[int, int](), 0, False
    with pinned_memory(cuda) as put:
        mine = graph(put)
        cache = GPUGraphCache(mine.csc_indptr, EdgeArrays(mine.indices), size, threshold, torch.device(device_of(cuda)))
        for request in requests:
            due = []
            for node in dict.fromkeys(() if full else request):
                counts[node] += 1
                if node not in copied and counts[node] >= threshold:
                    due.append(node)
            for node in due:
                if degree(own, node) > size:
                    counts[node] = 0
                    continue
                if full := used + degree(own, node) > size:
                    break
                copied[node] = used - column(own, node)[0]
                used += degree(own, node)
            full = full or used == size
            edges: Any = cache.look_up(cuda.put(torch.tensor(request, dtype=torch.int64))).indices
            found = edges.cache_offsets.tolist()
            assert found == [copied.get(node, ops.NOT_CACHED) for node in request]
            assert cache.num_edges == used
            kept = edges.cached.cpu()
            for node, shift in copied.items():
                start, end = column(own, node)
                assert kept[start + shift : end + shift].tolist() == own.indices[start:end].tolist()


def degree(own: gf.FusedCSCSamplingGraph, node: int) -> int:
    start, end = column(own, node)
    return end - start


@pytest.mark.parametrize("strategy", ["uniform", "labor"])
@pytest.mark.parametrize("make", [graph, typed_graph])
def test_what_was_copied_is_not_read_over_the_bus(cuda: Cuda, make: Any, strategy: Any) -> None:
    """Neither what is sampled, nor what it is chosen by."""
    with pinned_memory(cuda) as put:
        own = make(put)
        ids = cuda.put(torch.arange(10))
        seeds = ids if own.node_type_to_id is None else {"user": ids, "item": ids}
        fanouts = [torch.tensor([3]) if own.node_type_to_id is None else torch.tensor([3, 2])]
        request = request_of(10_000, fanouts, probs_name="weight", strategy=strategy)
        first, again = (sample(own, seeds, request) for _ in range(2))
        assert again == first
        for part in (
            own.indices,
            own.type_per_edge,
            own.cumulative_weights("weight"),
            own.edge_attribute(gf.ORIGINAL_EDGE_ID),
        ):
            if part is not None:
                part.numpy().fill(1)  # which is not noticed, unlike an edit by torch
        assert sample(own, seeds, request) == first


def request_of(size: int, fanouts: Any = None, threshold: int = 1, **options: Any) -> SamplingRequest:
    fanouts = fanouts or [torch.tensor([3])]
    return SamplingRequest(fanouts, num_gpu_cached_edges=size, gpu_cache_threshold=threshold, **options)


def sample(own: Any, seeds: Any, request: SamplingRequest) -> list[Any]:
    if request.strategy == "labor":
        hops = own.labor_sample_hops(seeds, request, [(1, 1)])
    else:
        hops = own.sample_hops(seeds, request, [1])
    return [part.tolist() for part in tensors_in(hops)]


def test_a_full_cache_adds_no_waits(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("nothing counts how often a device is waited for")
    with pinned_memory(cuda) as put:
        own, ids, waits = graph(put), cuda.put(torch.arange(NODES)), []
        for size in (0, 10_000, 60):  # room for all columns, and for a few
            request = request_of(size, [torch.tensor([3])] * 3)
            for number in range(20):
                cuda.waits.clear()
                own.sample_hops(ids[number % NODES :][:6], request, [1, 2, 3])
            waits.append(len(cuda.waits))
    # Without a cache all hops are read at once; with one, each by itself.
    assert (waits[0], waits[2]) == (1, 7), waits


def test_samplers_share_a_cache_of_equal_options_until_the_graph_changes(cuda: Cuda) -> None:
    with pinned_memory(cuda) as put:
        own = graph(put)
        seeds = cuda.put(torch.arange(3))

        def cache_of(graph: Any, threshold: int = 2, **options: Any) -> GPUGraphCache:
            cached = cached_graph_for(graph, seeds, request_of(10, threshold=threshold))
            assert cached is not None
            return cached.cache(**options)

        first = cache_of(own)
        assert cache_of(own) is first
        assert cache_of(own, 3) is not first
        assert cache_of(own, probs_name="weight") is not first
        assert cache_of(own, probs_name="weight") is cache_of(own, probs_name="weight")
        own.add_edge_attribute(gf.ORIGINAL_EDGE_ID, put(torch.zeros(own.total_num_edges, dtype=torch.int64)))
        second = cache_of(own)
        assert second is not first
        own.indices = put(own.indices.clone())
        assert cache_of(own) is not second
        gone = weakref.ref(own)
        del own
        gc.collect()
        assert gone() is None


def test_threads_that_come_at_once_make_one_cache(cuda: Cuda) -> None:
    with pinned_memory(cuda) as put:
        own, seeds = graph(put), cuda.put(torch.arange(3))

        def find() -> Any:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                cached = cached_graph_for(own, seeds, request_of(10))
                return cached and cached.cache()

        first, second = by_two_threads(find, gpu_graph_cache, "GPUGraphCache", 0.2)
        assert first is second is not None


def test_there_is_no_cache_where_there_is_no_bus(cuda: Cuda) -> None:
    with cuda.running():
        for own, seeds, size in (
            (graph(plain), torch.arange(3), 10),
            (graph(cuda.put), cuda.put(torch.arange(3)), 10),
            (graph(plain), cuda.put(torch.arange(3)), 0),
        ):
            assert cached_graph_for(own, seeds, request_of(size)) is None
    assert cached_graph_for(typed_graph(plain), {}, request_of(10)) is None


def test_a_graph_that_is_not_pinned_is_refused(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"page-lock it with pin_memory_\(\)"):
        graph(plain).sample_hops(cuda.put(torch.arange(3)), request_of(10), [1])
