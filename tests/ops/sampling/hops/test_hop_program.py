import os

import pytest
import torch

from graphfeed.ops.sampling.hops import hop_program
from graphfeed.ops.sampling.hops.hop_program import HopProgram, ProgramPool
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, KernelGraph, recipe_of

INDPTR, INDICES = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0])
GRAPH = KernelGraph(INDPTR, INDICES)
RECIPE = recipe_of(GRAPH, torch.int64, Drawing(), [[-1]], False)


def names(recipe: object) -> list[str]:
    """Return the kernels of a program."""
    return [kernel.__name__ for kernel, *_ in HopProgram(recipe).program.steps]  # type: ignore[arg-type]


def test_a_program_has_the_passes_that_its_recipe_needs_and_no_other() -> None:
    assert names(RECIPE) == ["open_columns", "count_uniform", "fill_uniform"]
    relabelled = RECIPE._replace(relabelled=True)
    assert names(relabelled)[0] == names(relabelled)[-1] == "mark_rows"
    assert names(relabelled)[4:-1] == ["lay_out_columns", "read_neighbors", "relabel"]


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
