from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed.ops import Picks
from graphfeed.ops.sampling.cached_edge_values import CachedEdgeValues, read_edges
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, check_equal
from tests.ops.sampling.test_cached_edge_values import COLUMNS, DTYPES, make_case


@settings(max_examples=20)
@given(COLUMNS, st.sampled_from(DTYPES))
def test_values_are_those_of_the_cpu(cuda: Cuda, columns: list[tuple[int, bool]], dtype: torch.dtype) -> None:
    values, cached, picks, cache_offsets = make_case(columns, dtype)
    expected = read_edges(CachedEdgeValues(values, cached, cache_offsets), *picks)
    for order in cuda.each_order():
        with order, cuda.running():
            given = Picks(cuda.put(picks.offsets), cuda.put(picks.positions))
            edges = CachedEdgeValues(cuda.put(values), cuda.put(cached), cuda.put(cache_offsets))
            check_equal(cuda, read_edges(edges, *given), expected)


def test_where_there_is_a_copy_it_is_read(cuda: Cuda) -> None:
    values, cached, picks, cache_offsets = make_case([(3, True), (2, False), (4, True)], torch.int64)
    with cuda.running():
        given = Picks(cuda.put(picks.offsets), cuda.put(picks.positions))
        edges = CachedEdgeValues(cuda.put(values), cuda.put(cached + 1000), cuda.put(cache_offsets))
        found = read_edges(edges, *given).cpu()
    assert (found - values[picks.positions]).tolist() == [1000, 1000, 0, 1000, 1000]


def test_pinned_values_are_read_by_few_threads(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the launches of a device are not noted")
    values, cached, picks, cache_offsets = make_case([(5, index % 3 == 0) for index in range(600)], torch.int64)
    with (
        cuda.running(),
        patch("graphfeed.ops.memory.pinned.LIMIT.threads", 256),
    ):
        given = Picks(cuda.put(picks.offsets), cuda.put(picks.positions))
        edges = CachedEdgeValues(cuda.pin(values), cuda.put(cached), cuda.put(cache_offsets))
        check_equal(cuda, read_edges(edges, *given), values[picks.positions])
        assert cuda.launches == [("read_cached_edges", 2048), ("copy_rows", 256)]
