"""All hops of a graph with types are those of the reference, on each device."""

from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.memory import ReadChoice, buffers
from graphfeed.ops.sampling.hops.hop_graph import Shape
from graphfeed.ops.sampling.hops.hop_recipe import Method
from tests import reference, reference_hops
from tests.gpu.compare_kernels import moved
from tests.ops.devices import Cpu, Device, Put, results
from tests.ops.emulated_cuda import EmulatedCuda
from tests.ops.graphs import ID_DTYPES
from tests.ops.typed import HOPS, SEEDS, SHARES, Hops, Typed, as_lists, draws_of, problems, random_graph, text

MODULE = import_module("graphfeed.ops.sampling.hops.sample_hops")
PICKING = import_module("graphfeed.ops.sampling.hops.pick_edges")


ON_GPU = ("indptr", "indices", "types", "cumulative")


@pytest.mark.parametrize("method", ["uniform", "labor"])
@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(problems(), st.booleans(), SHARES, st.data())
def test_equal_to_the_reference(
    device: Device,
    method: Method,
    dtype: torch.dtype,
    problem: tuple[Typed, list[list[int]], Hops],
    replace: bool,
    share: int,
    data: st.DataObject,
) -> None:
    (typed, seeds, hops), weighted = problem, data.draw(st.booleans())
    by_page = isinstance(device, Cpu) and data.draw(st.booleans())
    keys, steps = draws_of(method, hops, share)
    units = reference.weights_to_units(typed.indptr, typed.weights) if weighted else None
    only_new = isinstance(device, Cpu) and data.draw(st.booleans())
    rows: Any = data.draw(st.sampled_from(["node", "tree", "edge"])) if isinstance(device, Cpu) else "node"
    expected = reference_hops.typed_sample_hops(
        typed.graph, typed.kinds, seeds, steps, replace, units, (only_new, rows)
    )
    hops, keys = hops[: len(expected)], keys[: len(expected)]
    graph = typed.arrays(dtype, weighted=weighted)._replace(reads=ReadChoice() if by_page else None)

    def sample(put: Put) -> Any:
        own = graph._replace(**{name: moved(getattr(graph, name), put) for name in ON_GPU})
        ids = [put(torch.tensor(part, dtype=dtype)) for part in seeds]
        fanouts = [torch.tensor(own) for own, _ in hops]
        return ops.sample_hops(own, ids, fanouts, keys, ops.Drawing(method, replace, share, only_new, rows))

    first, most = data.draw(st.sampled_from([1, 1 << 22])), data.draw(st.sampled_from([0, 9, PICKING.MOST_EDGES]))
    order = data.draw(st.sampled_from([0, 1, 2]))
    with (
        patch.object(MODULE, "FIRST_EDGES", first),
        patch.object(PICKING, "MOST_EDGES", most),
        patch.object(EmulatedCuda, "order", order),
    ):
        for found in results(device, sample):
            assert as_lists(found, typed) == expected
            for hop in found:
                assert {own.positions.dtype for own in hop.edges.values()} <= {torch.int64}
                assert all(part.dtype == dtype for part in (*hop.columns, *hop.rows))
                assert all(own.indptr.dtype == own.indices.dtype == dtype for own in hop.edges.values())
                assert not isinstance(device, Cpu) or all(own.indices.numel() for own in hop.edges.values())


def test_a_larger_mini_batch_is_the_same_on_each_device(device: Device) -> None:
    graph, fanouts = random_graph(), [torch.tensor([2, 1, 1, 0, 2]), torch.tensor([3])]
    expected = text(ops.sample_hops(graph, SEEDS, fanouts, [1, 2]))

    def sample(put: Put) -> Any:
        own = graph._replace(**{name: moved(getattr(graph, name), put) for name in ON_GPU})
        return ops.sample_hops(own, [put(part) for part in SEEDS], fanouts, [1, 2])

    for found in results(device, sample):
        assert text(found) == expected


def test_many_node_types_have_no_more_room_in_time_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FIRST_ROWS", 1000)
    none = torch.empty(0, dtype=torch.int64)
    for kinds, room in ((2, 401), (40, 25)):
        shape = Shape(range(kinds + 1), range(kinds), [0] * kinds, range(kinds))
        rows = MODULE.first_room(ops.HopGraph(torch.zeros(2), none), 1, [400], shape, ops.Drawing(rows="edge")).rows
        assert rows == [room] * kinds


def test_maps_are_clean_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FIRST_EDGES", 1)
    for _ in range(2):
        ops.sample_hops(random_graph(601), SEEDS, HOPS, [1, 2])
        assert (buffers.NODE_MAPS.idle[601][-1] == -1).all()


def test_without_room_for_a_map_nodes_are_found_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ops.sample_hops(random_graph(), SEEDS, HOPS, [1, 2])
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=4 * 600 - 1))
    assert text(ops.sample_hops(random_graph(), SEEDS, HOPS, [1, 2])) == text(expected)
