"""Programs of passes are kept for mini-batches that are sampled alike, and lent to one at a time."""

import os
from importlib import import_module

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.sampling.hops import hop_program
from graphfeed.ops.sampling.hops.hop_graph import kernel_graph
from graphfeed.ops.sampling.hops.hop_program import ProgramPool
from graphfeed.ops.sampling.hops.hop_recipe import MANY, Drawing, KernelGraph, recipe_of

INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0])


GRAPH = KernelGraph(INDPTR, INDICES)


RECIPE = recipe_of(GRAPH, torch.int64, Drawing(), [[-1]], False)


def test_one_program_is_kept_for_all_large_fan_outs_and_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, graph = ProgramPool(), ops.HopGraph(INDPTR, INDICES)
    monkeypatch.setattr(import_module("graphfeed.ops.sampling.hops.sample_hops"), "PROGRAMS", pool)
    for fanout, share in ((MANY, 7), (MANY + 5, 9), (1000, 0)):
        ops.sample_hops(graph, INDICES, [fanout], [(1, 2)], ops.Drawing("labor", switch_threshold=share))
        assert len(pool.idle) == 1


def test_a_program_is_lent_to_one_at_a_time() -> None:
    pool = ProgramPool()
    first, second = pool.take(RECIPE), pool.take(RECIPE)
    assert first is not second
    pool.give_back(first)
    assert pool.take(RECIPE) is first


def test_only_the_programs_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop_program, "MOST_PROGRAMS", 2)
    pool = ProgramPool()
    recipes = [RECIPE._replace(fanouts=((1, fanout),)) for fanout in (1, 2, 3)]
    for recipe in recipes:
        pool.give_back(pool.take(recipe))
    assert list(pool.idle) == recipes[1:]


def test_a_program_with_much_room_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop_program, "MOST_COLUMNS", 1)
    pool = ProgramPool()
    pool.give_back(pool.take(RECIPE))
    assert not pool.idle


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_finds_the_lock_free() -> None:
    with hop_program.PROGRAMS.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if hop_program.PROGRAMS.lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_arrays_in_the_dtypes_of_kernels_are_not_copied() -> None:
    types = torch.tensor([0, 1, 1], dtype=torch.uint8)
    own = kernel_graph(ops.HopGraph(INDPTR, INDICES, types, *NUMBERS))
    assert own.types is not None
    assert [part.data_ptr() for part in (own.indptr, own.indices, own.types)] == [
        part.data_ptr() for part in (INDPTR, INDICES, types)
    ]


NUMBERS = torch.tensor([0, 3]), torch.tensor([[0, 0], [0, 0]]), torch.tensor([1, 0])
