import random
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.memory import buffers
from tests import reference
from tests.ops.graphs import ID_DTYPES

MODULE = import_module("graphfeed.ops.structure.compact")
"""By its name, for `ops.compact` is the function."""
NUM_NODES = 60
Typed = tuple[list[list[int]], list[list[int]], list[int]]


@pytest.fixture
def no_dense_maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(buffers, "NODE_MAPS", buffers.NodeMaps(limit_bytes=4 * NUM_NODES - 1))
    yield
    assert buffers.NODE_MAPS.used_bytes == 0


@st.composite
def typed_nodes(draw: st.DrawFn) -> Typed:
    """Make seeds by node type, neighbours by edge type, and the node type of each edge type's neighbours."""
    cuts = sorted(draw(st.lists(st.integers(0, NUM_NODES), min_size=0, max_size=2)))
    ranges = [range(low, high) for low, high in zip([0, *cuts], [*cuts, NUM_NODES], strict=True)]
    sources = draw(st.lists(st.sampled_from([kind for kind, ids in enumerate(ranges) if ids]), max_size=4))
    chance = random.Random(draw(st.integers(0, 2**32)))
    seeds = [chance.choices(ids, k=chance.randrange(8)) if ids else [] for ids in ranges]
    neighbors = [chance.choices(ranges[kind], k=chance.randrange(40)) for kind in sources]
    return seeds, neighbors, sources


def compact_typed(given: Typed, dtype: torch.dtype, num_nodes: int | None) -> tuple[list[list[int]], list[list[int]]]:
    seeds, neighbors, sources = given
    neighbor_starts = reference.running_sum(len(ids) for ids in neighbors)
    result = ops.compact_parts(
        torch.tensor(reference.join(seeds), dtype=dtype),
        torch.tensor(reference.join(neighbors), dtype=dtype),
        seed_starts=torch.tensor(reference.running_sum(len(ids) for ids in seeds)),
        neighbor_starts=torch.tensor(neighbor_starts),
        sources=torch.tensor(sources, dtype=torch.int64),
        num_nodes=num_nodes,
    )
    assert result.rows.dtype == result.local.dtype == dtype
    assert result.row_starts.dtype == torch.int64
    assert len(result.rows) == result.row_starts[-1]
    rows = [part.tolist() for part in result.rows.tensor_split(result.row_starts[1:-1])]
    return rows, [part.tolist() for part in result.local.tensor_split(neighbor_starts[1:])][: len(sources)]


@pytest.mark.parametrize("dtype", ID_DTYPES)
@pytest.mark.parametrize("num_nodes", [None, NUM_NODES])
@given(typed_nodes())
def test_equal_to_the_reference(dtype: torch.dtype, num_nodes: int | None, given: Typed) -> None:
    assert compact_typed(given, dtype, num_nodes) == reference.compact(*given)


@pytest.mark.parametrize("dtype", ID_DTYPES)
def test_equal_to_the_reference_beyond_the_limit_of_maps(no_dense_maps: None, dtype: torch.dtype) -> None:
    given: Typed = ([[3, 3, 1], [50]], [[9, 1, 3], [59, 58, 59], [0]], [0, 1, 0])
    assert compact_typed(given, dtype, NUM_NODES) == reference.compact(*given)


@given(st.lists(st.integers(0, 59), max_size=10), st.lists(st.integers(0, 59), max_size=40))
def test_without_types_there_is_one(seeds: list[int], neighbors: list[int]) -> None:
    tensors = (torch.tensor(seeds, dtype=torch.int64), torch.tensor(neighbors, dtype=torch.int64))
    (rows,), (local,) = reference.compact([seeds], [neighbors], [0])
    for num_nodes in (None, NUM_NODES):
        result = ops.compact(*tensors, num_nodes=num_nodes)
        assert result.rows.tolist() == rows
        assert result.row_starts.tolist() == [0, len(rows)]
        assert result.local.tolist() == local


@given(st.lists(st.integers(0, 2**62), max_size=10), st.lists(st.integers(0, 2**62), max_size=40))
def test_hashed_ids_may_be_large(seeds: list[int], neighbors: list[int]) -> None:
    neighbors += seeds
    result = ops.compact(torch.tensor(seeds, dtype=torch.int64), torch.tensor(neighbors, dtype=torch.int64))
    (rows,), (local,) = reference.compact([seeds], [neighbors], [0])
    assert result.rows.tolist() == rows
    assert result.local.tolist() == local


@pytest.mark.parametrize("step", [1, 2**20, 2**31, 2**44, 2**52])
def test_hashed_ids_may_be_alike(step: int) -> None:
    ids = (torch.arange(4000) * step) % 2**62
    result = ops.compact(ids[:10], ids)
    assert result.rows.equal(ids[: len(set(ids.tolist()))])
    assert result.rows[result.local].equal(ids)


@pytest.mark.parametrize("num_nodes", [None, 2**20])
def test_large_batches(num_nodes: int | None) -> None:
    ids = torch.randint(0, 2**20, (200_000,))
    result = ops.compact(ids[:1000], ids[1000:], num_nodes=num_nodes)
    (rows,), (local,) = reference.compact([ids[:1000].tolist()], [ids[1000:].tolist()], [0])
    assert result.rows.tolist() == rows
    assert result.local.tolist() == local


@pytest.mark.parametrize("largest", [50_000, MODULE.SMALL_MAP - 1, MODULE.SMALL_MAP, 2**40])
def test_without_a_number_of_nodes_small_ids_need_no_hashing(largest: int) -> None:
    maps = buffers.NODE_MAPS.used_bytes, {size: len(own) for size, own in buffers.NODE_MAPS.idle.items()}
    seeds, neighbors = torch.randperm(40_000)[:500], torch.randint(0, 50_000, (MODULE.FEW,))
    neighbors[-1] = largest
    found = ops.compact(seeds, neighbors)
    (rows,), (local,) = reference.compact([seeds.tolist()], [neighbors.tolist()], [0])
    assert (found.rows.tolist(), found.local.tolist()) == (rows, local)
    size = 1 << (largest + 1).bit_length()
    if largest < MODULE.SMALL_MAP:
        assert (buffers.NODE_MAPS.idle[size][-1] == -1).all()
    else:
        assert maps == (buffers.NODE_MAPS.used_bytes, {size: len(own) for size, own in buffers.NODE_MAPS.idle.items()})


def test_maps_are_clean_afterwards() -> None:
    maps = buffers.NODE_MAPS
    for seeds, neighbors in (([1, 1], [2, 3]), ([], [4]), ([5], [])):
        ops.compact(torch.tensor(seeds, dtype=torch.int64), torch.tensor(neighbors, dtype=torch.int64), num_nodes=77)
        assert (maps.idle[77][-1] == -1).all()


def test_seeds_are_not_shared_with_the_rows() -> None:
    seeds = torch.tensor([1, 2])
    result = ops.compact(seeds, torch.tensor([2]))
    result.rows[:] = 9
    assert seeds.tolist() == [1, 2]


def test_dtypes_must_agree() -> None:
    ids: dict[str, Any] = {"seeds": torch.tensor([1]), "neighbors": torch.tensor([1], dtype=torch.int32)}
    with pytest.raises(TypeError, match=r"seeds and neighbors must have one dtype, .* torch\.int64 and torch\.int32"):
        ops.compact(**ids)
