"""What a choice takes, and what a trial says."""

import pytest

from graphfeed.loader.profile import summarise
from graphfeed.loader.tune import Choice, Limits
from graphfeed.loader.tune.choice import FEWEST, MOST, MOST_SMALL, enough, spread, trial_of
from tests.loader.profile.records import make_record

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
