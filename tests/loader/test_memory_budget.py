import pickle

import pytest

from graphfeed.loader import memory_budget
from graphfeed.loader.memory_budget import MemoryBudget


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let 1200 bytes be available, and note how often somebody asks."""
    answers: list[float] = []

    def available() -> float:
        answers.append(1200.0)
        return answers[-1]

    monkeypatch.setattr(memory_budget, "available_memory", available)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return answers


def test_a_limit_is_all_there_is(asked: list[float]) -> None:
    assert MemoryBudget(600).for_rows() == 600
    tuned = MemoryBudget(600, tunes=True)
    assert (tuned.for_rows(), tuned.for_workers(0), tuned.for_workers(250)) == (300, 600, 350)
    assert asked == []


def test_without_a_limit_it_goes_by_what_is_available_when_that_is_asked_first(asked: list[float]) -> None:
    budget = MemoryBudget(tunes=True)
    assert (budget.for_rows(), budget.for_workers(200), MemoryBudget().for_rows()) == (200, 600, 400)
    assert len(asked) == 2
    copy = pickle.loads(pickle.dumps(budget))
    assert copy == budget
    assert copy.for_rows() == 200
    assert len(asked) == 3


@pytest.mark.parametrize("limit", [None, 400])
def test_ranks_of_a_machine_share_it(asked: list[float], limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert MemoryBudget(limit).for_rows() == 100
    assert MemoryBudget(limit, tunes=True).for_workers(0) == (150 if limit is None else 100)
