from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.graphs import FANOUTS, KEYS, Graph, graphs_and_seeds
from tests.ops.hops import sample_all, sample_one

HOPS = st.lists(st.tuples(FANOUTS, KEYS), min_size=1, max_size=4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(graphs_and_seeds(), HOPS, st.booleans(), st.booleans())
def test_equal_to_one_hop_at_a_time_from_the_new_nodes(
    dtype: torch.dtype, given: tuple[Graph, list[int]], hops: list[tuple[int, int]], replace: bool, weighted: bool
) -> None:
    graph, seeds = given
    sums = torch.tensor(reference.cumulate_weights(graph.indptr, graph.weights), dtype=torch.int64)
    indptr, indices = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    options: dict[str, Any] = {"replace": replace, "cumulative": sums if weighted else None}
    nodes, known = torch.tensor(seeds, dtype=dtype), 0
    fanouts, keys = [hop[0] for hop in hops], [hop[1] for hop in hops]
    found = sample_all(indptr, indices, nodes, fanouts, keys, only_new=True, **options)
    assert found is not None
    one_hop = ops.StaticGraph(indptr, cumulative=options["cumulative"])
    for hop, fanout, key in zip(found, fanouts, keys, strict=True):
        picks = sample_one(one_hop, nodes[known:], torch.tensor([fanout]), key, replace=replace)
        merged = ops.compact(nodes, indices[picks.positions])
        assert hop.columns.tolist() == nodes.tolist()
        assert hop.rows.tolist() == merged.rows.tolist()
        assert hop.indptr.tolist() == [0] * known + picks.offsets.tolist()
        assert hop.positions.tolist() == picks.positions.tolist()
        assert hop.indices.tolist() == merged.local.tolist()
        assert hop.rows.dtype == hop.indices.dtype == hop.indptr.dtype == dtype
        nodes, known = merged.rows, len(nodes)
