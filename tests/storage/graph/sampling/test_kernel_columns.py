import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling.kernel_columns import kernel_columns
from tests.digests import digests

NODES, EDGES = 40, 900


def typed_graph(starts: torch.dtype, types: torch.dtype) -> gf.FusedCSCSamplingGraph:
    """Return a graph of two edge types, in dtypes of a user's choice."""
    chance = torch.Generator().manual_seed(1)
    indptr = torch.arange(0, EDGES + 1, EDGES // NODES)[: NODES + 1]
    indptr[-1] = EDGES
    kinds = torch.arange(EDGES) % (EDGES // NODES) * 2 // (EDGES // NODES + 1)
    last = slice(int(indptr[-2]), EDGES)
    kinds[last] = kinds[last].sort().values
    return gf.fused_csc_sampling_graph(
        indptr.to(starts),
        torch.randint(0, NODES, (EDGES,), generator=chance).to(starts),
        node_type_offset=torch.tensor([0, NODES]),
        type_per_edge=kinds.to(types),
        node_type_to_id={"a": 0},
        edge_type_to_id={"a:x:a": 0, "a:y:a": 1},
    )


def sampled(graph: gf.FusedCSCSamplingGraph) -> list[str]:
    """Return the digests of mini-batches."""
    ids = torch.arange(NODES, dtype=graph.indices.dtype)
    items = gf.HeteroItemSet({"a": gf.ItemSet(ids, names="seeds")})
    return digests(gf.ItemSampler(items, batch_size=8).sample_neighbor(graph, [3, torch.tensor([2, 2])]))


@pytest.mark.parametrize("types", [torch.int16, torch.int32, torch.int64])
def test_dtypes_of_types_change_no_mini_batch(types: torch.dtype) -> None:
    assert sampled(typed_graph(torch.int64, types)) == sampled(typed_graph(torch.int64, torch.uint8))


def test_the_graph_keeps_what_it_was_given_and_widens_once() -> None:
    graph = typed_graph(torch.int32, torch.int64)
    first, again = kernel_columns(graph), kernel_columns(graph)
    assert graph.csc_indptr.dtype == torch.int32
    assert graph.type_per_edge is not None
    assert graph.type_per_edge.dtype == torch.int64
    assert first[1] is not None
    assert (first[0].dtype, first[1].dtype) == (torch.int64, torch.int32)
    assert first[0] is again[0]
    assert first[1] is again[1]


def test_arrays_in_the_dtypes_of_kernels_are_not_copied() -> None:
    graph = typed_graph(torch.int64, torch.uint8)
    starts, types = kernel_columns(graph)
    assert starts is graph.csc_indptr
    assert types is graph.type_per_edge


def test_results_have_the_dtypes_of_the_graph() -> None:
    graph = typed_graph(torch.int32, torch.int16)
    items = gf.HeteroItemSet({"a": gf.ItemSet(torch.arange(NODES, dtype=torch.int32), names="seeds")})
    batch = next(iter(gf.ItemSampler(items, batch_size=8).sample_neighbor(graph, [3])))
    (hop,) = batch.sampled_subgraphs
    for part in hop.sampled_csc.values():
        assert part.indptr.dtype == torch.int32
        assert part.indices.dtype == torch.int32


def test_narrow_column_starts_are_widened_anew_by_a_check_after_edits() -> None:
    graph = typed_graph(torch.int32, torch.uint8)
    before = kernel_columns(graph)[0]
    graph.csc_indptr[1] = 0
    graph.type_per_edge.zero_()
    graph.check()
    after = kernel_columns(graph)[0]
    assert before[1] > 0
    assert after[1] == 0
