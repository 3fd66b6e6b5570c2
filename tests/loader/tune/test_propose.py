"""Which choice comes next: by tables, in simulated pipelines, and for any history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.tune import Choice, Limits, Trial, best_of, propose
from graphfeed.loader.tune.propose import MOST_TRIALS
from tests.loader.tune.simulated import Simulated, grid, simulate, tune

LIMITS = Limits(num_cores=4, memory=1e9, minibatch_bytes=1e6, worker_bytes=1e7)
INLINE = Choice("thread", 0, 2)


def threads(count: int, each: int = 2) -> Choice:
    return Choice("thread", count, each)


def processes(count: int, each: int = 2) -> Choice:
    return Choice("process", count, each)


def trial(
    choice: Choice,
    rate: float,
    waits: float = 0.5,
    *,
    step: float = 0.0,
    busy: float = 10.0,
    cpu: float = 1.0,
    noise: float = 0.0,
) -> Trial:
    return Trial(choice, rate, waits, step, busy, cpu, noise)


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        # From no workers on: as many as keep the step busy, at first two.
        ([trial(INLINE, 100)], threads(2)),
        ([trial(INLINE, 100, step=20)], threads(1)),
        # More while that helps, up to the cores.
        ([trial(INLINE, 100), trial(threads(2), 200)], threads(4)),
        ([trial(INLINE, 100), trial(threads(2), 200), trial(threads(4), 400)], threads(4, 4)),
        ([trial(INLINE, 100), trial(threads(2), 200), trial(threads(4), 400), trial(threads(4, 4), 390)], threads(3)),
        # Where four are slower than two, there may be three.
        ([trial(INLINE, 100), trial(threads(2), 200), trial(threads(4), 150)], threads(3)),
        # The lock shows where four threads each have a core for less of the time than one.
        ([trial(INLINE, 100), trial(threads(2), 110, cpu=0.55)], processes(4)),
        ([trial(INLINE, 100), trial(threads(2), 110, cpu=0.55), trial(processes(4), 90)], threads(4)),
        ([trial(INLINE, 100), trial(threads(2), 99, cpu=0.5)], processes(4)),
        # Those who wait for a disk may be more than the cores.
        ([trial(INLINE, 100, cpu=0.1), trial(threads(4), 390, cpu=0.09)], threads(8)),
        ([trial(INLINE, 100, cpu=0.04), trial(threads(4), 390, cpu=0.01)], threads(8)),
        # The step is the limit: fewer, if they keep up.
        ([trial(INLINE, 50), trial(threads(4), 100, 0.01, step=10, busy=10)], threads(2)),
    ],
    ids=str,
)
def test_the_next_choice(tried: list[Trial], expected: Choice) -> None:
    assert propose(tried, LIMITS).choice == expected


@pytest.mark.parametrize(
    ("tried", "reason"),
    [
        ([trial(INLINE, 100, 0.01, step=9)], "your step is the limit"),
        ([trial(INLINE, 50), trial(threads(1), 100, 0.0, step=10)], "your step is the limit"),
        ([trial(INLINE, 100), *(trial(threads(1, each), 100) for each in range(1, 10))], "it is the best of 10"),
        ([trial(INLINE, 100), trial(threads(1), 50)], "nothing next to it is faster"),
    ],
)
def test_the_end(tried: list[Trial], reason: str) -> None:
    proposal = propose(tried, Limits(1, 1e9))
    assert (proposal.choice, proposal.reason) == (None, reason)


@pytest.mark.parametrize(
    ("tried", "best"),
    [
        ([trial(threads(1), 97), trial(threads(2), 100)], threads(1)),
        ([trial(threads(1), 93), trial(threads(2), 100)], threads(2)),
        ([trial(threads(1), 93, noise=0.1), trial(threads(2), 100)], threads(1)),
        ([trial(threads(1), 50, noise=0.9), trial(threads(2), 100)], threads(2)),
        ([trial(processes(1), 100), trial(threads(4), 98)], threads(4)),
        ([trial(threads(2, 4), 100), trial(threads(2, 2), 99)], threads(2, 2)),
    ],
    ids=str,
)
def test_the_cheapest_of_those_that_are_as_fast_is_the_best(tried: list[Trial], best: Choice) -> None:
    assert best_of(tried).choice == best


def test_processes_that_there_can_not_be_are_not_tried() -> None:
    tried = [trial(INLINE, 100), trial(threads(2), 110, cpu=0.55)]
    assert propose(tried, Limits(4, 1e9, no_processes="not here")).choice == threads(4)


def test_what_takes_too_much_memory_is_refused_for_what_is_next_to_it() -> None:
    tried = [trial(INLINE, 100), trial(threads(2), 200)]
    proposal = propose(tried, Limits(4, memory=10e6, minibatch_bytes=1e6))
    assert proposal.choice == threads(4, 1)
    assert proposal.refused == (threads(4),)
    proposal = propose([trial(INLINE, 100)], Limits(4, memory=2e6, minibatch_bytes=1e6))
    assert (proposal.choice, proposal.refused) == (None, (threads(2),))


PIPES = {
    "sampling": Simulated(),
    "a fetch that three threads fill the memory with": Simulated(compute=8, bandwidth=3),
    "the lock is held four fifths of the time": Simulated(compute=1, locked=4),
    "the lock is held all the time": Simulated(compute=0.1, locked=5),
    "the lock is held two fifths of the time": Simulated(compute=3, locked=2),
    "a disk that answers five requests at once": Simulated(compute=1, disk=10, requests=5),
    "a slow step": Simulated(step=30),
    "uneven": Simulated(spread=0.3),
    "very uneven": Simulated(spread=0.8),
    "small mini-batches": Simulated(compute=0.02, locked=0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("pipe", PIPES.values(), ids=PIPES)
def test_simulated_pipelines_come_near_the_best_of_a_grid(pipe: Simulated) -> None:
    limits = Limits(8, memory=1e9, minibatch_bytes=1e6, worker_bytes=2e6)

    def true_rate(choice: Choice) -> float:
        return float(np.mean([simulate(pipe, choice, np.random.default_rng(99 + n), limits).rate for n in range(3)]))

    top = max(map(true_rate, grid(8)))
    for seed in range(20):
        tried = tune(pipe, limits, np.random.default_rng(seed))
        assert len(tried) <= MOST_TRIALS
        assert true_rate(best_of(tried).choice) >= 0.9 * top


@pytest.mark.parametrize("megabytes", [3, 8, 20, 60])
def test_no_trial_takes_more_memory_than_the_limit(megabytes: int) -> None:
    limits = Limits(8, megabytes * 1e6, minibatch_bytes=1e6, worker_bytes=1e7, server_bytes=5e6)
    for pipe in PIPES.values():
        tried = tune(pipe, limits, np.random.default_rng(megabytes))  # asserts it before each trial
        assert max(trial.memory for trial in tried) <= limits.memory


@given(
    rates=st.lists(st.floats(1, 1000), min_size=40, max_size=40),
    waits=st.lists(st.floats(0, 1), min_size=40, max_size=40),
    cpus=st.lists(st.floats(0, 1), min_size=40, max_size=40),
    cores=st.integers(1, 64),
    step=st.floats(0, 100),
    megabytes=st.floats(1, 100),
)
def test_any_history_ends_and_repeats_nothing(
    rates: list[float], waits: list[float], cpus: list[float], cores: int, step: float, megabytes: float
) -> None:
    limits = Limits(cores, megabytes * 1e6, minibatch_bytes=1e6, worker_bytes=1e6)
    tried = [trial(INLINE, rates[0], waits[0], step=step, cpu=cpus[0])]
    while (proposal := propose(tried, limits)).choice is not None:
        choice = proposal.choice
        assert choice not in {one.choice for one in tried}
        assert 1 <= choice.num_workers <= 4 * cores
        assert limits.memory_to_try(choice, best_of(tried).choice) <= limits.memory
        number = len(tried)
        tried.append(trial(choice, rates[number], waits[number], step=step, cpu=cpus[number]))
    assert proposal.reason
    assert len(tried) <= MOST_TRIALS
