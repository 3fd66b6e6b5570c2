import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage.datasets import edge_sorting
from graphfeed.storage.datasets.edge_sorting import (
    EdgeArray,
    EdgeList,
    Sorting,
    count_columns,
    memory_for_sorting,
    sort_tasks,
    split_columns,
)
from graphfeed.storage.datasets.file_tasks import run_tasks
from tests import reference


def quiet() -> ProgressBar:
    return progress_bar("", 0, "edge", wanted=False)


@pytest.mark.parametrize("memory", [1, 100, 1 << 30])
@pytest.mark.parametrize("part_edges", [3, 1 << 20])
def test_any_memory_gives_the_same_files(
    tmp_path: Path, memory: int, part_edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_sorting, "PART_EDGES", part_edges)
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, (2, 30)), rng.integers(0, 4, (2, 20)).astype(np.int32)
    time = rng.random((30, 2))
    lists = [
        EdgeList("r", 0, (0, 0), "a", first, (5, 5), {"edge_0": time}),
        EdgeList("s", 1, (0, 5), "b", second, (5, 4), {"edge_0": time[:20] + 1}),
    ]
    indptr = count_columns(lists, 9, quiet())
    out = [
        EdgeArray(tmp_path / "indices", "source", np.dtype(np.int32)),
        EdgeArray(tmp_path / "types", "type", np.dtype(np.uint8)),
        EdgeArray(tmp_path / "rows", "row", np.dtype(np.int64)),
        EdgeArray(tmp_path / "time", "edge_0", np.dtype(np.float64), (2,)),
    ]
    np.save(tmp_path / "indptr.npy", indptr.astype(np.int32))
    assert sum(run_tasks(tmp_path, sort_tasks(lists, tmp_path / "indptr.npy", out, Sorting(memory))).values()) == 50
    sources = [*first[0], *second[0]]
    destinations = [*first[1], *(second[1] + 5)]
    expected = reference.coo_to_csc(sources, destinations, 9)
    order = expected[2]
    assert indptr.tolist() == expected[0]
    assert np.load(tmp_path / "indices").tolist() == [sources[place] for place in order]
    assert np.load(tmp_path / "types").tolist() == [int(place >= 30) for place in order]
    assert np.load(tmp_path / "rows").tolist() == [place % 30 for place in order]
    assert np.array_equal(np.load(tmp_path / "time"), np.concatenate([time, time[:20] + 1])[order])


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(1, 8))
def test_ranges_cover_all_columns_and_are_small(degrees: list[int], most: int) -> None:
    indptr = np.array(reference.running_sum(degrees), dtype=np.int64)
    ranges = list(split_columns(indptr, most))
    assert [column for first, last in ranges for column in range(first, last)] == list(range(len(degrees)))
    assert all(indptr[last] - indptr[first] <= most or last == first + 1 for first, last in ranges)


@pytest.mark.parametrize("name", ["source", "destination"])
@pytest.mark.parametrize("wrong", [-1, 4])
def test_ids_are_checked_against_their_type(name: str, wrong: int) -> None:
    ends = np.zeros((2, 3), dtype=np.int64)
    ends[int(name == "destination"), 2] = wrong
    edges = EdgeList(None, 0, (0, 0), "graph.edges[1]", ends, (4, 4))
    with pytest.raises(ValueError, match=rf"graph\.edges\[1\]: {name}s must lie in 0 \.\. 3, but holds {wrong}"):
        edges.read(name, slice(0, 3))


def test_edges_of_another_shape_or_dtype() -> None:
    with pytest.raises(ValueError, match=r"The shape of edges should be \(2, N\), but got \(3, 2\)"):
        EdgeList(None, 0, (0, 0), "graph.edges[0]", np.zeros((3, 2), dtype=np.int64), (1, 1))
    with pytest.raises(ValueError, match=r"graph\.edges\[0\]: edges must be integers, but are float64"):
        EdgeList(None, 0, (0, 0), "graph.edges[0]", np.zeros((2, 3)), (1, 1))


def test_memory_is_a_quarter_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_for_sorting() > 1 << 20
    monkeypatch.setattr(edge_sorting, "memory_limit", lambda: 4096)
    assert memory_for_sorting() == 1024
    monkeypatch.setattr(edge_sorting, "memory_limit", lambda: math.inf)
    assert memory_for_sorting() == 1 << 31
