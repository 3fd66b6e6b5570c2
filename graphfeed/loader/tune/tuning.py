"""Runs epochs as segments, each with another choice of workers, until the best one is known."""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from threading import Event
from time import perf_counter_ns
from typing import Any

from graphfeed.datapipes.pipeline import find, torch_shard
from graphfeed.loader.plan import make_plan
from graphfeed.loader.profile import EpochRecord, Profile, summarise
from graphfeed.loader.progress import Progress
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.runner import Runner
from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.tune.choice import FEWEST, Choice, Limits, Trial, enough, spread, trial_of
from graphfeed.loader.tune.limits import find_limits, memory_of_worker
from graphfeed.loader.tune.propose import best_of, propose
from graphfeed.ops.process import ForkLock

ROUNDS = 2
"""How often a choice and the best so far take turns in a trial."""


@dataclass(frozen=True)
class Segment:
    """A part of an epoch with one choice."""

    choice: Choice
    is_over: Callable[[], bool] = lambda: False
    """Asked after each mini-batch."""
    is_measured: bool = False
    ending: Event = field(default_factory=Event)


class Tuning:
    """Measures one choice after the other, each with a segment of an epoch, and keeps the best one.

    In a trial, a choice and the best one so far take turns. Between two segments, workers finish what they have begun,
    so nothing is made twice. Worker processes start while the best choice so far goes on. Of several epochs that run at
    once, one is measured; the others run with the best choice so far.

    Args:
        runner: What runs the pipeline, with any workers.
        options: The options of its plan, with what `prefetch_factor` is at first. Mini-batches in flight and worker
            processes have the `memory_limit`, of which a part is for rows that are read ahead; or half of what is left
            when the first epoch begins.
    """

    def __init__(self, runner: Runner, options: LoaderOptions) -> None:
        self.limits: Limits | None = None
        self.tried: list[Trial] = []
        self.refused: dict[Choice, float] = {}
        """What there was not enough memory for, and how much it would have taken."""
        self.settled = ""
        """Why nothing else is tried; empty while measuring."""
        self.best = Choice("thread", 0, options.prefetch_factor)
        """What runs unless something is being measured."""
        self._like, self._options = runner, options
        self._runners: dict[Choice, Runner] = {}
        self.current = self._runner(self.best)
        """What runs, or ran last."""
        self._trial: Choice | None = self.best
        self._records: defaultdict[Choice, list[EpochRecord]] = defaultdict(list)
        """What was measured in this trial."""
        self._turn = 0
        """How many segments of this trial are over: it and the best so far take turns."""
        self._target = 0
        """How many mini-batches this turn takes until it is looked at."""
        self._is_measuring = False
        self._lock = ForkLock()
        self._users: Counter[Choice] = Counter()

    def run(self, position: Progress, seed: int, profile: Profile | None = None) -> Generator[Any, None, None]:
        """Yield the mini-batches of an epoch from a position on.

        Args:
            position: How far the epoch is; who takes a mini-batch counts it there before taking the next one.
            seed: The seed.
            profile: Where to write down what is measured, if a user wants to know.
        """
        # A worker of torch's DataLoader makes some of the indexes alone, and can't go on from their number.
        is_whole = torch_shard()[1] == 1
        with self._lock:
            measures = is_whole and not self.settled and not self._is_measuring
            self._is_measuring = self._is_measuring or measures
        try:
            goes_on = True
            while goes_on:
                segment = self._next_segment() if measures else Segment(self.best)
                try:
                    with self._in_use(segment.choice):
                        yield from self._run(segment, Progress(position.epoch, position.index), seed, profile)
                    goes_on = segment.ending.is_set()
                except Exception as error:
                    # What fails in processes alone, such as a result that can't be pickled, is no failure of the epoch:
                    # threads make the mini-batch again, and fail again if it is one.
                    if not segment.is_measured or segment.choice.worker == "thread":
                        raise
                    self._rule_out(error)
        finally:
            if measures:
                self._is_measuring = False
            self._tidy(at_end=True)

    def close(self) -> None:
        """End all workers."""
        for runner in self._runners.values():
            runner.workers.close()

    def _runner(self, choice: Choice) -> Runner:
        """Return what runs the pipeline with a choice."""
        if choice not in self._runners:
            plan = make_plan(
                self._like.plan.written,
                replace(
                    self._options,
                    num_workers=choice.num_workers,
                    in_threads=choice.worker == "thread",
                    prefetch_factor=choice.prefetch_factor,
                ),
            )
            workers = replace(self._like.workers, worker=choice.worker, num_workers=choice.num_workers, persistent=True)
            self._runners[choice] = replace(self._like, plan=plan, workers=workers)
        return self._runners[choice]

    def _run(self, segment: Segment, begin: Progress, seed: int, profile: Profile | None) -> Iterator[Any]:
        """Yield the mini-batches of a segment."""
        ending = segment.ending
        self.current = self._runner(segment.choice)
        # Without workers, nothing is begun that has not come out, but for windows, which end by themselves.
        ends_at_once = segment.choice.num_workers == 0 and not find(self.current.plan.running, InWindows)
        if segment.is_measured and profile is None:
            profile = Profile()
        with closing(self.current.run(begin, seed, profile, ending)) as minibatches:
            for number, minibatch in enumerate(minibatches):
                if segment.is_measured and profile is not None and number == 0:
                    self._records[segment.choice].append(profile.records[-1])
                if segment.is_measured and number < FEWEST:
                    self._records[segment.choice][-1].count_bytes(minibatch)
                yield minibatch
                if not ending.is_set() and segment.is_over():
                    ending.set()
                if ending.is_set() and ends_at_once:
                    return

    @contextmanager
    def _in_use(self, choice: Choice) -> Iterator[None]:
        with self._lock:
            self._users[choice] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[choice] -= 1

    def _next_segment(self) -> Segment:
        self.limits = self.limits or find_limits(self._like.plan, self._options)
        while not self.settled:
            if self._trial is None:
                self._begin_trial(self.limits)
            elif not self._has_started():
                return Segment(self.best, self._has_started)
            # Otherwise _has_started() has just given the trial up.
            elif self._trial is not None:
                return Segment(self._at_turn(self._trial), self._is_measured, is_measured=True)
        return Segment(self.best)

    def _begin_trial(self, limits: Limits) -> None:
        """Choose what to try next, and begin to start its processes; or settle."""
        self._tidy()
        proposal = propose(self.tried, limits)
        self.refused.update({choice: limits.memory_to_try(choice, self.best) for choice in proposal.refused})
        if proposal.choice is None:
            self.settled = proposal.reason
            return
        self._trial, self._turn, self._target = proposal.choice, 0, 0
        self._records.clear()
        if proposal.choice.worker == "thread":
            return
        # Once they are made, the copies in shared memory stay.
        self.limits = replace(limits, memory=limits.memory - limits.copied_bytes, copied_bytes=0.0)
        try:
            runner = self._runner(proposal.choice)
            (cut,) = find(runner.plan.running, InWorkers)
            runner.workers.start_ahead(cut.changed(is_measured=True))  # type: ignore[arg-type]
        except Exception as error:
            self._rule_out(error)

    def _has_started(self) -> bool:
        """Tell whether the workers of the trial are there, or won't be, in which case there is no trial any more."""
        choice = self._trial
        if choice is None or choice.worker == "thread":
            return True
        try:
            if not self._runner(choice).workers.are_ready():
                return False
        except Exception as error:
            self._rule_out(error)
            return True
        limits = self._weigh(choice)
        size = limits.memory_to_try(choice, self.best)
        if size > limits.memory:
            self.refused[choice] = size
            self._trial = None
        return True

    def _weigh(self, choice: Choice) -> Limits:
        assert self.limits is not None
        # If the system does not tell, they keep what they were taken for.
        with suppress(OSError, KeyError):
            sizes = [memory_of_worker(pid) for pid in self._runner(choice).workers.pids()]
            if sizes:
                alone, shared = (max(size) for size in zip(*sizes, strict=True))
                self.limits = replace(self.limits, worker_bytes=alone, server_bytes=shared)
        return self.limits

    def _rule_out(self, error: Exception) -> None:
        self._trial = None
        # No more processes are tried, and those that were are out.
        self.tried = [trial for trial in self.tried if trial.choice.worker == "thread"]
        self.best = best_of(self.tried).choice
        if self.limits is not None:
            self.limits = replace(self.limits, no_processes=f"{type(error).__name__}: {error}")

    def _at_turn(self, trial: Choice) -> Choice:
        # By turns: caches warm up and other programs come and go, for both of them alike.
        return trial if self._turn % 2 == 0 else self.best

    def _is_measured(self) -> bool:
        """Tell whether this turn of the trial has seen enough."""
        if self._trial is None:
            return True
        choice = self._at_turn(self._trial)
        turns = 2 * ROUNDS if self.tried else 1  # the first choice is compared with nothing
        taken = sum(len(record.handovers) for record in self._records[choice])
        if taken < max(self._target, FEWEST // ROUNDS):
            return False
        # The epoch goes on, but what is measured of it in this turn ends here.
        self._records[choice][-1].ended = perf_counter_ns()
        summary = summarise(self._records[choice])
        wanted = enough(spread(summary), choice.window, summary.rate)
        if turns > 1:
            wanted = ceil(wanted * (self._turn // 2 + 1) / ROUNDS)
        if summary.num_minibatches < wanted:
            self._target = taken + wanted - summary.num_minibatches
            return False
        self._turn, self._target = self._turn + 1, 0
        if self._turn == turns:
            self._end_trial(self._trial)
        return True

    def _end_trial(self, choice: Choice) -> None:
        """Note what was measured, with the rate as a multiple of that of the best so far in the same trial."""
        assert self.limits is not None
        largest = max(size for records in self._records.values() for record in records for size in record.sizes)
        self.limits = replace(self.limits, minibatch_bytes=max(self.limits.minibatch_bytes, largest))
        if choice.worker == "process":
            self._weigh(choice)
        trial = trial_of(choice, summarise(self._records[choice]), self.limits)
        if self.tried:
            before = next(known.rate for known in self.tried if known.choice == self.best)
            trial = replace(trial, rate=trial.rate / summarise(self._records[self.best]).rate * before)
        self.tried.append(trial)
        self.best, self._trial = best_of(self.tried).choice, None

    def _tidy(self, *, at_end: bool = False) -> None:
        # Once it is settled, all workers end with an epoch of a loader that keeps none.
        ends_all = at_end and not self._like.workers.persistent and bool(self.settled)
        with self._lock:
            needed: set[Choice | None] = {choice for choice, count in self._users.items() if count}
            needed |= set() if ends_all else {self.best, self._trial}
            unneeded = [runner for choice, runner in self._runners.items() if choice not in needed]
        for runner in unneeded:
            runner.workers.close()
