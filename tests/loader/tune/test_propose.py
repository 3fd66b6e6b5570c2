"""Which choice comes next, what it takes and what a trial of it says, in simulated pipelines and for any history."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.loader.profile import summarise
from graphfeed.loader.tune import Choice, Limits, Trial, best_of, describe_tuning, propose
from graphfeed.loader.tune.choice import FEWEST, MOST, MOST_SMALL, enough, spread, trial_of
from graphfeed.loader.tune.propose import MOST_TRIALS
from tests import pipelines
from tests.loader.profile.records import make_record
from tests.loader.tune.simulated import Simulated, grid, simulate, tune

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


def test_fewer_workers_are_tried_where_they_may_keep_up_and_more_than_cores_where_they_wait_for_a_disk() -> None:
    limits = Limits(num_cores=4, memory=1e9, minibatch_bytes=1e6, worker_bytes=1e7)
    doubled = [trial(INLINE, 100), trial(threads(2), 200), trial(threads(4), 400)]
    nexts = [
        ([trial(INLINE, 50), trial(threads(4), 100, 0.01, step=10, busy=10)], threads(2)),  # the step is the limit
        (doubled, threads(4, 4)),
        ([*doubled, trial(threads(4, 4), 390)], threads(3)),
        ([trial(INLINE, 100), trial(threads(2), 200), trial(threads(4), 150)], threads(3)),
        ([trial(INLINE, 100, cpu=0.1), trial(threads(4), 390, cpu=0.09)], threads(8)),
    ]
    assert [propose(tried, limits).choice for tried, _ in nexts] == [expected for _, expected in nexts]


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


BEST = [
    ([trial(threads(1), 97), trial(threads(2), 100)], threads(1)),
    ([trial(threads(1), 93), trial(threads(2), 100)], threads(2)),
    ([trial(threads(1), 93, noise=0.1), trial(threads(2), 100)], threads(1)),
    ([trial(threads(1), 50, noise=0.9), trial(threads(2), 100)], threads(2)),
    ([trial(processes(1), 100), trial(threads(4), 98)], threads(4)),
    ([trial(threads(2, 4), 100), trial(threads(2, 2), 99)], threads(2, 2)),
]


def test_the_cheapest_of_those_that_are_as_fast_is_the_best() -> None:
    for tried, best in BEST:
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


def test_simulated_pipelines_come_near_the_best_of_a_grid() -> None:
    limits = Limits(8, memory=1e9, minibatch_bytes=1e6, worker_bytes=2e6)
    for name, pipe in PIPES.items():
        still = replace(pipe, spread=0.0)
        rates = {choice: simulate(still, choice, np.random.default_rng(0), limits).rate for choice in grid(8)}
        for seed in range(20):
            tried = tune(pipe, limits, np.random.default_rng(seed))
            assert len(tried) <= MOST_TRIALS
            chosen = simulate(still, best_of(tried).choice, np.random.default_rng(0), limits)
            assert chosen.rate >= 0.85 * max(rates.values()), (name, seed, chosen.choice)


def test_no_trial_takes_more_memory_than_the_limit() -> None:
    for megabytes, pipe in itertools.product((3, 8, 20, 60), PIPES.values()):
        limits = Limits(8, megabytes * 1e6, minibatch_bytes=1e6, worker_bytes=1e7, server_bytes=5e6)
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


LIMITS = Limits(4, 1e9, minibatch_bytes=10.0, worker_bytes=100.0, server_bytes=50.0, copied_bytes=7.0)


def test_a_choice_reads_as_the_options_of_a_loader() -> None:
    assert str(Choice("thread", 0, 2)) == "num_workers=0"
    assert str(Choice("process", 3, 2)) == "num_workers=3, worker='process', prefetch_factor=2"
    assert Choice("process", 3, 2).window == 6


@pytest.mark.parametrize(
    ("choice", "minibatches", "processes"),
    [
        (Choice("thread", 0, 2), 3, 0),
        (Choice("thread", 2, 2), 4 + 2 + 2 + 1, 0),
        (Choice("process", 2, 3), 6 + 2 + 3 + 1 + 4, 257),
    ],
    ids=str,
)
def test_memory_is_that_of_all_mini_batches_that_may_be_there_and_of_processes(
    choice: Choice, minibatches: int, processes: int
) -> None:
    assert LIMITS.memory_of(choice) == 10 * minibatches + processes
    assert LIMITS.memory_of_processes(choice) == processes


def test_while_processes_start_the_memory_of_both_choices_counts() -> None:
    threads, processes = Choice("thread", 4, 8), Choice("process", 1, 1)
    starting = LIMITS.memory_of(threads) + LIMITS.memory_of_processes(processes)
    assert starting > LIMITS.memory_of(processes)
    assert LIMITS.memory_to_try(processes, threads) == starting
    assert LIMITS.memory_to_try(threads, processes) == starting
    assert LIMITS.memory_to_try(threads, Choice("thread", 1, 1)) == LIMITS.memory_of(threads)


def test_a_trial_is_taken_from_a_summary() -> None:
    summary = summarise([make_record(60, step_ms=1, wait_ms=4, work_ms=(1, 5))])
    trial = trial_of(Choice("process", 2, 2), summary, LIMITS)
    assert (trial.rate, trial.waits, trial.step_ms) == pytest.approx((200, 0.8, 1), rel=0.02)
    assert (trial.busy_ms, trial.cpu, trial.noise) == (6, 0.5, 0)
    assert trial.memory == LIMITS.memory_of(trial.choice)


def test_uneven_times_ask_for_more_mini_batches() -> None:
    assert spread(summarise([make_record(60)])) == 0
    assert enough(0.0, 4, 10.0) == FEWEST
    assert enough(0.3, 4, 10.0) == 100
    assert enough(5.0, 4, 10.0) == MOST
    assert enough(0.0, 100, 10.0) == 400
    assert enough(0.0, 4, 1e6) == MOST_SMALL


def test_it_says_what_was_chosen_measured_and_refused() -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers="auto")
    tuning: Any = loader._tuning
    assert describe_tuning(tuning)[0].endswith("nothing was measured yet")
    inline, two = Choice("thread", 0, 2), Choice("thread", 2, 2)
    tuning.limits = Limits(2, 3e6)
    tuning.tried = [Trial(inline, 10.0, 0.9, 1.0, 9.0, 1.0, 0.0, 1e6), Trial(two, 20.0, 0.8, 1.0, 9.0, 1.0, 0.0, 2e6)]
    tuning.best = two
    assert "still measuring" in describe_tuning(tuning)[0]
    tuning.settled = "nothing next to it is faster"
    tuning.refused = {Choice("thread", 2, 4): 4e6}
    tuning.limits = replace(tuning.limits, no_processes="not here")
    assert describe_tuning(tuning) == [
        "workers: num_workers=\"auto\" chose num_workers=2, worker='thread', prefetch_factor=2: nothing next to it is "
        "faster",
        "  per second  waits   memory",
        "        10.0   90 %   1.0 MB  num_workers=0",
        "        20.0   80 %   2.0 MB  num_workers=2, worker='thread', prefetch_factor=2",
        "  refused: num_workers=2, worker='thread', prefetch_factor=4 would take 4.0 MB, more than the 3.0 MB of "
        "memory_limit",
        "  refused: worker='process': not here",
    ]
    assert loader.explain().endswith("\n".join(describe_tuning(tuning)))
