from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.compare_kernels import moved
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests.ops.emulated_cuda import Cuda, EmulatedCuda
from tests.ops.graphs import ID_DTYPES
from tests.ops.sampling.hops.test_sample_hops_cuda import ONE_HOP
from tests.ops.sampling.hops.test_sample_hops_typed import HOPS, Hops, Typed, as_lists, draws_of, problems, random_graph

ON_GPU = ("indptr", "indices", "types", "cumulative")


def moved_graph(graph: ops.HopGraph, put: Any) -> ops.HopGraph:
    return graph._replace(**{name: moved(getattr(graph, name), put) for name in ON_GPU})


@pytest.mark.parametrize("method", ["uniform", "labor"])
@given(problems(), st.data())
def test_hops_are_those_of_the_cpu(
    cuda: Cuda, method: Method, problem: tuple[Typed, list[list[int]], Hops], data: st.DataObject
) -> None:
    typed, seeds, hops = problem
    keys, _ = draws_of(method, hops, 1 << 62)
    dtype, order = data.draw(st.sampled_from(ID_DTYPES)), data.draw(st.sampled_from([0, 1, 2]))
    graph = typed.arrays(dtype, weighted=data.draw(st.booleans()))
    drawing = ops.Drawing(method, data.draw(st.booleans()), 1 << 62)

    def sample(put: Any) -> Any:
        ids = [put(torch.tensor(part, dtype=dtype)) for part in seeds]
        fanouts = [torch.tensor(own) for own, _ in hops]
        found = ops.typed_sample_hops(moved_graph(graph, put), ids, fanouts, keys, drawing)
        assert all(own.indptr.dtype == own.indices.dtype == dtype for hop in found or [] for own in hop.edges.values())
        return as_lists(found, typed)

    expected = sample(lambda tensor: tensor)
    most = data.draw(st.sampled_from([0, 9, ONE_HOP.MOST_EDGES]))
    with cuda.running(), patch.object(ONE_HOP, "MOST_EDGES", most), patch.object(EmulatedCuda, "order", order):
        assert sample(cuda.put) == expected


@pytest.mark.parametrize("wrong", [-1, 50])
def test_seeds_that_are_no_nodes_are_named(cuda: Cuda, wrong: int) -> None:
    with cuda.running():
        graph = moved_graph(random_graph(), cuda.put)
        seeds = [cuda.put(torch.tensor(part, dtype=torch.int64)) for part in ([0, 299], [1, wrong], [])]
        with pytest.raises(ValueError, match=rf"seeds\[1\] must lie in 0 .. 49, but holds {wrong}"):
            ops.typed_sample_hops(graph, seeds, HOPS, [1, 2])
