from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.arguments.verified import trust
from graphfeed.ops.cpu import pages
from graphfeed.ops.memory import MappedReads, buffers
from tests import reference
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds
from tests.ops.hops import sample_all, sample_one

HOPS = st.lists(st.tuples(FANOUTS, KEYS), min_size=1, max_size=4)
NUM_NODES = 2000
MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")
"""By its name, for `ops.sample_hops` is the function."""


def random_graph(num_nodes: int = NUM_NODES, num_edges: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and sources; some nodes have many neighbours, and some have none."""
    destinations = (torch.rand(num_edges) ** 3 * num_nodes).long()
    indptr, indices, _ = ops.coo_to_csc(torch.randint(0, num_nodes, (num_edges,)), destinations, num_nodes)
    return indptr, indices


def hop_by_hop(
    graph: tuple[torch.Tensor, torch.Tensor], seeds: torch.Tensor, fanouts: Sequence[int], keys: Sequence[int]
) -> list[ops.SampledHop]:
    """Make the layers of the ops that do one hop."""
    indptr, indices = graph
    layers = []
    for fanout, key in zip(fanouts, keys, strict=True):
        picks = sample_one(ops.StaticGraph(indptr), seeds, torch.tensor([fanout]), key)
        relabelled = ops.compact(seeds, ops.gather_rows(indices, picks.positions))
        layers.append(ops.SampledHop(seeds, relabelled.rows, picks.offsets, relabelled.local, picks.positions))
        seeds = relabelled.rows
    return layers


def as_lists(layers: Sequence[ops.SampledHop] | None) -> list[list[list[int]]]:
    assert layers is not None
    return [[part.tolist() for part in layer] for layer in layers]


@pytest.fixture
def short_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FIRST_EDGES", 1)


@pytest.mark.parametrize("indptr_dtype", ID_DTYPES, ids=str)
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(graphs_and_seeds(), HOPS, st.sampled_from([1, 20, 1 << 22]), st.booleans(), st.booleans())
def test_equal_to_the_reference(
    indptr_dtype: torch.dtype,
    dtype: torch.dtype,
    given: tuple[Graph, list[int]],
    hops: list[tuple[int, int]],
    first_edges: int,
    replace: bool,
    weighted: bool,
) -> None:
    graph, seeds = given
    fanouts, keys = [hop[0] for hop in hops], [hop[1] for hop in hops]
    units = reference.weights_to_units(graph.indptr, graph.weights)
    cumulative = torch.tensor(reference.cumulate_weights(graph.indptr, graph.weights), dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "FIRST_EDGES", first_edges)
        layers = sample_all(
            torch.tensor(graph.indptr, dtype=indptr_dtype),
            torch.tensor(graph.indices, dtype=dtype),
            torch.tensor(seeds, dtype=dtype),
            fanouts,
            keys,
            replace=replace,
            cumulative=cumulative if weighted else None,
        )
    expected = reference.sample_hops(
        graph.indptr, graph.indices, seeds, fanouts, keys, replace, units if weighted else None
    )
    assert as_lists(layers) == [list(layer) for layer in expected]
    assert layers is not None
    for layer in layers:
        assert layer.columns.dtype == layer.rows.dtype == layer.indices.dtype == dtype
        assert layer.indptr.dtype == indptr_dtype
        assert layer.positions.dtype == torch.int64


@pytest.mark.parametrize("fanouts", [[15, 10, 5], [-1, 3], [60, 2, 49], [0, 4], [1] * 8])
def test_equal_to_one_hop_at_a_time(fanouts: list[int]) -> None:
    graph = random_graph()
    seeds = torch.randint(0, NUM_NODES, (100,))
    keys = [ops.Key(0, 0, 0).at(0, hop) for hop in range(len(fanouts))]
    layers = sample_all(*graph, seeds, fanouts, keys)
    assert as_lists(layers) == as_lists(hop_by_hop(graph, seeds, fanouts, keys))


@pytest.mark.parametrize("fanouts", [[15, 10, 5], [-1, 3], [60, 2, 49]])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
def test_a_graph_that_is_read_by_page_gives_the_same(fanouts: list[int], weighted: bool, dtype: torch.dtype) -> None:
    indptr, indices = random_graph()
    graph = ops.HopGraph(indptr, indices.to(dtype))
    if weighted:
        graph = graph._replace(cumulative=ops.cumulate_weights(indptr, torch.rand(indices.numel())))
    seeds, keys = torch.randint(0, NUM_NODES, (100,), dtype=dtype), list(range(len(fanouts)))
    layers = ops.sample_hops(graph._replace(reads=MappedReads()), seeds, fanouts, keys)
    assert as_lists(layers) == as_lists(ops.sample_hops(graph, seeds, fanouts, keys))


def test_more_edges_than_are_sorted_together_are_read_by_page() -> None:
    indptr, indices = random_graph(num_edges=pages.CHUNK + 5000)
    graph, seeds = ops.HopGraph(indptr, indices), torch.randperm(NUM_NODES)
    layers = ops.sample_hops(graph._replace(reads=MappedReads()), seeds, [-1], [1])
    assert layers is not None
    layer = layers[0]
    assert torch.equal(layer.rows[layer.indices], indices[layer.positions])


@pytest.mark.parametrize("only_new", [False, True])
def test_outputs_that_grow_give_the_same(only_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = *random_graph(), torch.randint(0, NUM_NODES, (300,)), [5, -1, 3], [1, 2, 3]
    expected = as_lists(sample_all(*asked, only_new=only_new))
    monkeypatch.setattr(MODULE, "FIRST_EDGES", 1)
    assert as_lists(sample_all(*asked, only_new=only_new)) == expected


def test_maps_are_clean_afterwards(short_outputs: None) -> None:
    graph = random_graph(NUM_NODES + 1)
    for seeds in (torch.arange(50), torch.tensor([3, 3]), torch.tensor([], dtype=torch.int64)):
        sample_all(*graph, seeds, [5, 5], [1, 2])
        assert (buffers.NODE_MAPS.idle[NUM_NODES + 1][-1] == -1).all()


def test_none_where_the_map_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=4 * NUM_NODES - 1))
    assert sample_all(*random_graph(), torch.tensor([1, 2]), [3, 3], [1, 2]) is None
    assert sample_all(*random_graph(NUM_NODES - 1), torch.tensor([1, 2]), [3, 3], [1, 2]) is not None


def test_threads_don_t_meet() -> None:
    graph = random_graph()
    batches = [torch.randint(0, NUM_NODES, (64,)) for _ in range(60)]

    def sample(index: int) -> list[list[list[int]]]:
        return as_lists(sample_all(*graph, batches[index], [5, 5, 5], [index, 1, 2]))

    expected = [sample(index) for index in range(len(batches))]
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(sample, range(len(batches)))) == expected


def test_layers_stay_as_they_are_while_others_are_made() -> None:
    graph = random_graph()
    seeds = torch.arange(200)
    layers = sample_all(*graph, seeds, [15, 10, 5], [1, 2, 3])
    expected = as_lists(layers)
    for key in range(20):
        sample_all(*graph, seeds, [15, 10, 5], [key, key, key])
    assert as_lists(layers) == expected


def test_each_edge_is_the_graphs() -> None:
    indptr, indices = random_graph()
    layers = sample_all(indptr, indices, torch.arange(0, NUM_NODES, 7), [5, 60, -1], [1, 2, 3])
    assert layers is not None
    for layer in layers:
        assert layer.rows[: len(layer.columns)].equal(layer.columns)
        assert layer.rows[layer.indices].equal(indices[layer.positions])
        columns = layer.columns.repeat_interleave(layer.indptr.diff())
        assert (indptr[columns] <= layer.positions).all()
        assert (layer.positions < indptr[columns + 1]).all()
    for inner, outer in pairwise(layers):
        assert outer.columns.equal(inner.rows)


def test_rows_are_distinct_but_for_equal_seeds() -> None:
    layers = sample_all(*random_graph(), torch.tensor([5, 5, 9]), [10, 10], [1, 2])
    assert layers is not None
    for layer in layers:
        assert layer.rows[:3].tolist() == [5, 5, 9]
        assert len(set(layer.rows.tolist())) == len(layer.rows) - 1
        assert not (layer.indices == 1).any(), "the second of two equal seeds is nobody's neighbour"


def test_positions_beyond_32_bits(tmp_path: Path) -> None:
    """All edges come from node 0, and lie in a file without content, which takes no room."""
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**34]
    indices = torch.from_numpy(np.memmap(tmp_path / "indices", np.int32, "w+", shape=(2**34,)))
    columns, seeds = torch.tensor(indptr), torch.tensor([1, 2], dtype=torch.int32)
    trust("csc", (columns, indices))  # a pass over them takes long
    layers = sample_all(columns, indices, seeds, [5, 60], [1, 2])
    assert layers is not None
    for layer, fanout, key in zip(layers, [5, 60], [1, 2], strict=True):
        picked = reference.sample_neighbors(indptr, layer.columns.tolist(), [fanout], key)
        assert layer.positions.tolist() == reference.join(picked)
        assert layer.rows.tolist() == [1, 2, 0]
    assert int(layers[1].positions.max()) > 2**33


def test_arguments_are_left_as_they_are() -> None:
    indptr, indices = random_graph()
    seeds = torch.tensor([4, 2])
    copies = [tensor.clone() for tensor in (indptr, indices, seeds)]
    sample_all(indptr, indices, seeds, [5, 5], [1, 2])
    assert all(left.equal(right) for left, right in zip(copies, (indptr, indices, seeds), strict=True))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"indptr": torch.tensor([0.0, 3.0])}, TypeError, "indptr must be .*, but is torch.float32"),
        ({"indptr": [0, 1]}, TypeError, "indptr must be a torch.Tensor, but is a list"),
        ({"seeds": [0]}, TypeError, "seeds must be a torch.Tensor, but is a list"),
        ({"seeds": torch.tensor([0], dtype=torch.int32)}, TypeError, r"seeds must be torch\.int64, .* torch\.int32"),
        ({"seeds": torch.tensor([[0]])}, ValueError, r"seeds must have 1 dimension, but has shape \(1, 1\)"),
        ({"seeds": torch.tensor([0, -1])}, ValueError, r"seeds must lie in 0 \.\. 2, but holds -1"),
        ({"seeds": torch.tensor([0, 3])}, ValueError, r"seeds must lie in 0 \.\. 2, but holds 3"),
        ({"keys": [1]}, ValueError, "keys must hold 2 numbers, one per hop, but holds 1"),
        ({"keys": [1, 2, 3]}, ValueError, "keys must hold 2 numbers, one per hop, but holds 3"),
        ({"fanouts": [2, -2]}, ValueError, "fanouts must be -1 .* or more, but hold.* -2"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    right: dict[str, Any] = {
        "indptr": torch.tensor([0, 2, 2, 3]),
        "indices": torch.tensor([1, 2, 0]),
        "seeds": torch.tensor([0]),
        "fanouts": [2, 2],
        "keys": [1, 2],
    }
    sample_all(**right)
    with pytest.raises(error, match=message):
        sample_all(**{**right, **changed})
