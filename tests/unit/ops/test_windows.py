"""Several mini-batches that are sampled in one call have the results of separate calls, and leave nothing behind."""

from collections import OrderedDict
from typing import Any
from unittest.mock import patch

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops import hop_program
from graphfeed.testing import limits
from tests.kinds.digests import digests

NODES = 400


def graph(count: int = 6) -> ops.Graph:
    """Return a graph of two node types in which every third node has no in-edges."""
    degrees = torch.arange(NODES) % 3 * count
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    columns = torch.arange(NODES).repeat_interleave(degrees)
    indices = torch.arange(len(columns)) * 7919 % NODES
    # Edge types lead from both node types to the one of the column; they ascend in each column.
    types = (indices >= NODES // 2) + 2 * (columns >= NODES // 2)
    place = torch.argsort(columns * 4 + types, stable=True)
    ends = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    return ops.Graph.checked(
        indptr, indices[place], types=types[place].to(torch.uint8), first_ids=[0, NODES // 2, NODES], ends=ends
    )


def minibatches(counts: list[tuple[int, int]]) -> list[list[torch.Tensor]]:
    """Return seeds of both types, some of them twice."""
    return [[(torch.arange(count) * 31 + number) % 97 for count in own] for number, own in enumerate(counts)]


COUNTS = {
    "as many": [(3, 2)] * 5, "few and many": [(1, 0), (2, 1), (90, 120), (0, 3), (200, 9)],
    "none": [(0, 0), (4, 0), (0, 0)], "one": [(5, 5)],
}  # fmt: skip
DRAWINGS = {
    "uniform": ops.Drawing(), "trees": ops.Drawing(rows="tree", only_new=True), "edges": ops.Drawing(rows="edge"),
    "LABOR": ops.Drawing("labor"),
}  # fmt: skip


def both(prepared: ops.PreparedHops, counts: list[tuple[int, int]], read: Any, *, joined: bool) -> tuple[Any, Any]:
    """Return the hops of mini-batches that are sampled in one call, and in separate ones."""
    seeds, is_labor = minibatches(counts), prepared.drawing.method == "labor"
    keys: list[Any] = [[(own, own + 1), (own + 2, own)] if is_labor else [own, 2**64 - own] for own in range(1, 99)]
    # With LABOR, each mini-batch may have its own share of nodes that draw with the second key.
    shares = [is_labor * number << 60 for number in range(len(seeds))]
    together = prepared.sample_window(seeds, keys[: len(seeds)], [None] * len(seeds), shares, read, joined)
    alone = [
        prepared.sample(own, key, None, share, read, joined)
        for own, key, share in zip(seeds, keys, shares, strict=False)
    ]
    return together, alone


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("drawing", DRAWINGS)
def test_they_are_those_of_separate_calls(drawing: str, joined: bool) -> None:
    prepared = ops.PreparedHops(graph(), [torch.tensor([2, 3, 1, 4]), torch.tensor([-1])], DRAWINGS[drawing])
    ids = torch.arange(len(prepared.graph.indices)) * 3
    for name, counts in COUNTS.items():
        for read in (None, ids, ids.int()) if joined else (None, ids.__getitem__):
            together, alone = both(prepared, counts, read, joined=joined)
            assert digests(together) == digests(alone), name


def test_a_program_is_reused_and_keeps_no_results() -> None:
    prepared = ops.PreparedHops(graph(), [torch.tensor([2]), torch.tensor([2])])
    with patch.object(hop_program.PROGRAMS, "idle", OrderedDict()):
        both(prepared, COUNTS["few and many"], None, joined=False)
        both(prepared, COUNTS["as many"], None, joined=False)
        programs = {recipe.kept: idle for recipe, idle in hop_program.PROGRAMS.idle.items()}
        ((program,), _) = programs["hops"], programs[None]
        assert {name for name, array in program.arrays.kept.arrays.items() if array.size > 4} == {"records"}


@pytest.mark.parametrize("joined", [False, True])
def test_a_huge_mini_batch_before_small_ones_takes_no_memory_for_more_like_it(joined: bool) -> None:
    prepared = ops.PreparedHops(graph(600), [torch.tensor([-1]), torch.tensor([0])])
    made, empty = list[Any](), buffers.POOL.empty

    def noted(shape: Any, dtype: Any) -> Any:
        made.append(empty(shape, dtype))
        return made[-1]

    with limits(window_bytes=1 << 16), patch.object(buffers.POOL, "empty", noted):
        together, alone = both(prepared, [(97, 0), *[(1, 0)] * 31], None, joined=joined)
    assert digests(together) == digests(alone)
    # Joined hops have three numbers per edge in one array.
    assert max(array.size for array in made) < 8 * sum(number % 3 * 600 for number in range(97))


def test_a_seed_that_is_not_there_is_an_error_and_later_calls_are_right() -> None:
    prepared = ops.PreparedHops(graph(), [torch.tensor([2]), torch.tensor([2])])
    seeds = minibatches(COUNTS["as many"])
    seeds[2][1][0] = NODES
    with pytest.raises(ValueError, match=r"refers to|seeds"):
        prepared.sample_window(seeds, [[1, 2]] * len(seeds), [None] * len(seeds))
    together, alone = both(prepared, COUNTS["as many"], None, joined=False)
    assert digests(together) == digests(alone)
