"""All hops of a mini-batch are those of the reference, on each device: made hop after hop."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.arguments.verified import mark_valid
from graphfeed.ops.cpu import pages
from graphfeed.ops.cpu.sampling.passes import candidates, labor
from graphfeed.ops.memory import ReadChoice, buffers
from graphfeed.ops.sampling.hops import hop_arrays, hop_program
from graphfeed.ops.sampling.hops.hop_graph import kernel_graph
from graphfeed.ops.sampling.hops.hop_program import ProgramPool
from graphfeed.ops.sampling.hops.hop_recipe import MANY, Drawing, Method, recipe_of
from tests import reference, reference_hops
from tests.digests import assert_same
from tests.ops.devices import Cpu, Device, Put, results
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds, put_columns
from tests.ops.hops import PlainHop, plain_hops, sample_all, sample_one
from tests.ops.typed import draws_of

HOPS = st.lists(st.tuples(FANOUTS, KEYS), min_size=1, max_size=4)
SHARES = st.sampled_from([0, 1, 2**62, 2**63, 2**64 - 1])
NUM_NODES = 2000
MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")
PICKING = import_module("graphfeed.ops.sampling.hops.pick_edges")
INDEX = import_module("graphfeed.ops.sampling.high_degree_index")


@pytest.mark.parametrize("method", ["uniform", "labor"])
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(graphs_and_seeds(), HOPS, SHARES, st.data())
def test_equal_to_the_reference(
    device: Device,
    dtype: torch.dtype,
    method: Method,
    given: tuple[Graph, list[int]],
    hops: list[tuple[int, int]],
    share: int,
    data: st.DataObject,
) -> None:
    (graph, seeds), starts = given, data.draw(st.sampled_from(ID_DTYPES))
    replace, weighted, only_new, by_page, by_index = (data.draw(st.booleans()) for _ in range(5))
    only_new, by_page, by_index = (own and isinstance(device, Cpu) for own in (only_new, by_page, by_index))
    arrays, units = graph.arrays(starts, dtype, weighted=weighted), graph.units if weighted else None
    keys, steps = draws_of(method, hops, share)
    rows: Any = data.draw(st.sampled_from(["node", "tree", "edge"])) if isinstance(device, Cpu) else "node"
    expected = reference_hops.sample_hops((graph.indptr, graph.indices), seeds, steps, replace, units, only_new, rows)
    fanouts, keys = [fanout for fanout, _ in hops[: len(expected)]], keys[: len(expected)]

    def sample(put: Put) -> Any:
        indptr, indices, sums, *_ = put_columns(put, arrays)
        index = ops.build_high_degree_index(indptr, indices) if by_index else None
        own = ops.HopGraph(indptr, indices, cumulative=sums, large_columns=index)
        own = own._replace(reads=ReadChoice() if by_page else None)
        drawing = ops.Drawing(method, replace, share, only_new, rows)
        return plain_hops(own, put(torch.tensor(seeds, dtype=dtype)), fanouts, keys, drawing)

    first, most = (
        data.draw(st.sampled_from([1, 20, 1 << 22])),
        data.draw(st.sampled_from([0, 9, PICKING.MOST_EDGES])),
    )
    with (
        patch.object(MODULE, "FIRST_EDGES", first),
        patch.object(hop_arrays, "FIRST_TABLE", first),
        patch.object(PICKING, "MOST_EDGES", most),
        patch.object(INDEX, "MIN_DEGREE", 8),
        patch.object(INDEX, "MAX_SHARE", 1),
    ):
        for found in results(device, sample):
            assert as_lists(found) == [list(hop) for hop in expected]
            for hop in found:
                assert hop.columns.dtype == hop.rows.dtype == hop.indices.dtype == dtype
                assert (hop.indptr.dtype, hop.positions.dtype) == (starts, torch.int64)


def random_graph(num_nodes: int = NUM_NODES, num_edges: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and sources; some nodes have many neighbours, and some have none."""
    destinations = (torch.rand(num_edges) ** 3 * num_nodes).long()
    indptr, indices, _ = ops.coo_to_csc(torch.randint(0, num_nodes, (num_edges,)), destinations, num_nodes)
    return indptr, indices


def as_lists(layers: Sequence[PlainHop]) -> list[list[list[int]]]:
    """Return the parts of each hop."""
    return [[part.tolist() for part in layer] for layer in layers]


@pytest.mark.parametrize("weighted", [False, True])
def test_large_mini_batches_are_made_hop_after_hop_also_where_a_graph_is_read_by_page(weighted: bool) -> None:
    indptr, indices = random_graph()
    sums = ops.cumulate_weights(indptr, torch.rand(indices.numel())) if weighted else None
    graph, one_hop = ops.HopGraph(indptr, indices, cumulative=sums), ops.StaticGraph(indptr, cumulative=sums)
    for fanouts in ([15, 10, 5], [-1, 3], [60, 2, 49], [0, 4], [1] * 8):
        seeds, keys, expected = torch.randint(0, NUM_NODES, (100,)), list(range(len(fanouts))), []
        rows = seeds
        for fanout, key in zip(fanouts, keys, strict=True):
            picks = sample_one(one_hop, rows, torch.tensor([fanout]), key)
            merged = ops.compact(rows, ops.gather_rows(indices, picks.positions))
            expected.append(PlainHop(rows, merged.rows, picks.offsets, merged.local, picks.positions))
            rows = merged.rows
        for own in (graph, graph._replace(reads=ReadChoice())):
            assert as_lists(plain_hops(own, seeds, fanouts, keys)) == as_lists(expected), fanouts


def test_more_edges_than_are_sorted_together_are_read_by_page() -> None:
    indptr, indices = random_graph(num_edges=pages.CHUNK + 5000)
    graph, seeds = ops.HopGraph(indptr, indices), torch.randperm(NUM_NODES)
    layers = plain_hops(graph._replace(reads=ReadChoice()), seeds, [-1], [1])
    layer = layers[0]
    assert torch.equal(layer.rows[layer.indices], indices[layer.positions])


def test_without_room_for_a_map_nodes_are_found_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds = random_graph(), torch.arange(300) % 200
    expected = sample_all(*graph, seeds, [15, 10, 5], [1, 2, 3])
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=4 * NUM_NODES - 1))
    for room in (1, hop_arrays.FIRST_TABLE):
        monkeypatch.setattr(hop_arrays, "FIRST_TABLE", room)
        assert_same(sample_all(*graph, seeds, [15, 10, 5], [1, 2, 3]), expected)


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


def test_positions_beyond_32_bits(disk_path: Path) -> None:
    """All edges come from node 0, and lie in a file without content, which takes no room."""
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**34]
    indices = torch.from_numpy(np.memmap(disk_path / "indices", np.int32, "w+", shape=(2**34,)))
    columns, seeds = torch.tensor(indptr), torch.tensor([1, 2], dtype=torch.int32)
    mark_valid("csc", (columns, indices))  # a pass over them takes long
    layers = sample_all(columns, indices, seeds, [5, 60], [1, 2])
    for layer, fanout, key in zip(layers, [5, 60], [1, 2], strict=True):
        picked = reference.sample_neighbors(indptr, layer.columns.tolist(), [fanout], key)
        assert layer.positions.tolist() == reference.join(picked)
        assert layer.rows.tolist() == [1, 2, 0]
    assert int(layers[1].positions.max()) > 2**33


INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0])


GRAPH = ops.HopGraph(INDPTR, INDICES)


RECIPE = recipe_of(GRAPH, torch.int64, Drawing(), [[-1]], False)


def test_one_program_is_kept_for_all_large_fan_outs_and_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, graph = ProgramPool(), ops.HopGraph(INDPTR, INDICES)
    monkeypatch.setattr(import_module("graphfeed.ops.sampling.hops.sample_hops"), "PROGRAMS", pool)
    for fanout, share in ((MANY, 7), (MANY + 5, 9), (1000, 0)):
        plain_hops(graph, INDICES, [fanout], [(1, 2)], ops.Drawing("labor", switch_threshold=share))
        assert len(pool.idle) == 1


def test_a_later_mini_batch_may_be_the_first_whose_draws_by_labor_only_the_heap_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(labor.fill_labor, "runs", {})
    monkeypatch.setattr(MODULE, "PROGRAMS", ProgramPool())
    fanout, columns = candidates.MAX_COLLECTED + 2, (torch.tensor([0, 1, 201]), torch.arange(201) % 2)
    for seeds, count in ((torch.tensor([0]), 1), (torch.tensor([1]), fanout)):
        (hop,) = sample_all(*columns, seeds, [fanout], [(1, 2)], "labor")
        assert hop.positions.numel() == count


def test_only_the_programs_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop_program, "MOST_PROGRAMS", 2)
    pool = ProgramPool()
    recipes = [RECIPE._replace(fanouts=((1, fanout),)) for fanout in (1, 2, 3)]
    for recipe in recipes:
        pool.release(pool.acquire(recipe))
    assert list(pool.idle) == recipes[1:]


def test_a_program_with_much_room_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop_program, "MOST_COLUMNS", 1)
    pool = ProgramPool()
    pool.release(pool.acquire(RECIPE))
    assert not pool.idle


def test_arrays_in_the_dtypes_of_kernels_are_not_copied() -> None:
    types = torch.tensor([0, 1, 1], dtype=torch.uint8)
    own = kernel_graph(ops.HopGraph(INDPTR, INDICES, types, *NUMBERS))
    assert own.types is not None
    assert [part.data_ptr() for part in (own.indptr, own.indices, own.types)] == [
        part.data_ptr() for part in (INDPTR, INDICES, types)
    ]


NUMBERS = torch.tensor([0, 3]), torch.tensor([[0, 0], [0, 0]]), torch.tensor([1, 0])
