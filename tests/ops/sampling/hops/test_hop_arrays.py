from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays, Room, Shape
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, KernelGraph, Recipe, recipe_of

NONE = torch.empty(0, dtype=torch.int32)


def recipe(kinds: int = 1, num_types: int = 1) -> Recipe:
    """Return the recipe of a hop of one edge each, in a graph of int32."""
    graph = KernelGraph(torch.tensor([0]), NONE, NONE.to(torch.uint8) if num_types > 1 else None)
    own = recipe_of(graph, torch.int32, Drawing(), [[1]], False)
    return own._replace(starts=torch.int32, kinds=kinds, num_types=num_types, relabelled=True)


def test_edges_get_no_more_room_than_their_dtype_counts() -> None:
    arrays = HopArrays(recipe())
    assert arrays.twice(5) == 10
    assert arrays.twice(3 << 29) == 2**31 - 1


def test_rows_get_no_more_room_than_their_dtype_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, sizes = HopArrays(recipe(2, 2)), list[int]()
    arrays.rows.arrays["known"][1, 0], arrays.nodes.arrays["rows"] = 3 << 29, np.empty(1, np.int32)

    def empty(size: int, dtype: Any) -> Any:
        sizes.append(size)
        return np.empty(0, dtype)

    monkeypatch.setattr(buffers.POOL, "empty", empty)
    arrays.grow_rows(0)
    assert sizes == [2**31 - 1]
    assert arrays.rows.arrays["firsts"].tolist() == [0, 2**31 - 1, 2**31 - 1]


def test_rows_that_move_keep_their_ids() -> None:
    arrays = HopArrays(recipe(2, 2))
    seeds = [np.array([4, 5], np.int32), np.array([6], np.int32)]
    arrays.open(seeds, Shape([0, 10, 20], [0, 1], [1, 0], [0, 1]), Room(4, 4, [1, 1]), [])
    assert arrays.rows.arrays["firsts"].tolist() == [0, 3, 5]
    arrays.rows.arrays["known"][1] = [9, 2]
    arrays.grow_rows(0)
    first, second, _ = arrays.rows.arrays["firsts"].tolist()
    assert second - first >= 9
    assert arrays.nodes.arrays["rows"][[first, first + 1, second]].tolist() == [4, 5, 6]


def test_columns_that_get_more_room_keep_what_is_there() -> None:
    arrays = HopArrays(recipe())
    size = arrays.columns.arrays["ids"].size
    arrays.columns.arrays["ids"][:] = np.arange(size)
    arrays.widen(arrays.columns, size + 1)
    assert arrays.columns.arrays["ids"].size > size
    assert arrays.columns.arrays["ids"][:size].tolist() == list(range(size))
    assert arrays.columns.arrays["offsets"].size > arrays.columns.arrays["ids"].size - 1


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="hop 0 would have 2147483648 edges, too many for int32; take smaller fanouts"):
        HopArrays(recipe()).check(0, 2**31)
