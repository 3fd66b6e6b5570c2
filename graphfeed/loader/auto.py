"""What `num_workers="auto"` means: some mini-batches are measured, and the number of workers follows from their times.

An epoch begins without workers. If it takes `work` to make a mini-batch and `step` to use it, then by Little's law
`work / step` of them have to be made at once to keep the step busy. So many threads and one more go on from there, and
are measured too. If these wait for the interpreter's lock, processes follow. Whatever was fastest stays, until an epoch
is faster or slower by a quarter. What was under way when workers change is made twice.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from time import perf_counter
from types import ModuleType
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, Shardable, Source
from graphfeed.datapipes.pipeline import find, torch_shard, traverse
from graphfeed.loader.executors import available_cores, cpu_quotas
from graphfeed.loader.executors.main_module import GUARD_ADVICE, is_guarded
from graphfeed.loader.executors.sending import can_be_sent
from graphfeed.loader.explain import bytes_text
from graphfeed.loader.plan import make_plan
from graphfeed.loader.profile import RARELY, EpochRecord, Profile, Summary, lock_is_short, summarise
from graphfeed.loader.progress import Progress
from graphfeed.loader.rules import Cooperates, LoaderOptions, sampled_on_device
from graphfeed.loader.runner import Runner
from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.ops.process import ForkLock
from graphfeed.storage.memory import find_places, parts_of, ranks_of_machine

FEWEST = 10
"""How many mini-batches are measured with a choice, and twice as many as are in flight beyond that."""
SHORTEST_SECONDS = 0.4
MOST_TRIALS = 4
SLOWER = 0.1
"""By which share what was planned may be slower than what ran before it. Other programs come and go meanwhile."""
CHANGED = 0.25
"""By which share the rate of an epoch differs from what was expected if it is planned anew."""
HALF = 0.5
"""The share of its time that a mini-batch needs a core for, up to which more workers than cores may help."""
MORE_THAN_CORES = 4
"""Workers per core, at most, where they mostly wait: for a disk, or for a server."""
WORKER_BYTES = 256e6
"""What a worker process takes: 229 MB with torch and the kernels of a pipeline."""
SMALL_BYTES = 1 << 13
"""Tensors up to this size are sent by value."""
PROCESSES = "worker='process':"


@dataclass(frozen=True)
class Choice:
    """Two options of a loader."""

    worker: str
    """"thread" or "process"."""
    num_workers: int

    def __str__(self) -> str:
        return f"num_workers={self.num_workers}" + (f", worker={self.worker!r}" if self.num_workers else "")


@dataclass(frozen=True)
class Trial:
    """What was measured with a choice."""

    choice: Choice
    rate: float
    """Mini-batches per second."""
    waits: float
    """The share of the time in which the loop waits."""
    memory: float
    """How many bytes the choice takes, at most."""


def why_fixed(pipe: Datapipe[Any]) -> str:
    """Return why workers can't change in the middle of an epoch, or there is nothing to choose; empty if they can."""
    if sampled_on_device(pipe) is not None:
        return "mini-batches are sampled on a GPU"
    plan = make_plan(pipe, LoaderOptions(num_workers=1, window=0))
    sources, cuts = find(pipe, Source), find(plan.running, InWorkers)
    if any(stage.cooperative for stage in find(pipe, Cooperates)):  # type: ignore[attr-defined]
        return "ranks make joint mini-batches, so all of them need the same workers"
    if not sources or not all(isinstance(source, Shardable) for source in sources):
        return "the source has an order of its own, so the pipeline can't go on from an index"
    if not all(stage.one_to_one or isinstance(stage, Source) for stage in traverse(pipe)):
        return "a stage does not map one mini-batch to one, so the pipeline can't go on from an index"
    if len(cuts) > 1:
        return "workers run several branches of the pipeline"
    return "" if cuts else "no stage runs in workers"


class Auto:
    """Runs epochs with the workers that their own measurements ask for.

    Of several epochs that run at once, one is measured; the others run with what is there. Mini-batches in flight and
    worker processes have the `memory_limit`, of which a part is for rows that are read ahead.
    """

    def __init__(self, runner: Runner, options: LoaderOptions) -> None:
        self.tried: list[Trial] = []
        """What was measured when it was last planned."""
        self.settled = ""
        """Why what runs stays; empty while measuring."""
        self.refused: dict[str, str] = {}
        """What would have been tried, and why it was not."""
        self._like, self._options = runner, options
        self._cores = max(1, min([available_cores(), *map(ceil, cpu_quotas())]) // ranks_of_machine())
        self._most = self._cores
        """How many workers may help."""
        self._minibatch_bytes = 0.0
        """The size of the largest mini-batch so far."""
        self._rate = 0.0
        """What is expected of an epoch."""
        self._records: list[EpochRecord]
        """What was measured with the present choice."""
        self._next_look: float
        """When it is asked again whether that is enough, also in a later epoch."""
        self._begins = True
        """Whether what was measured before counts no longer."""
        self._is_measuring = False
        self._lock = ForkLock()
        self._take(Choice("thread", 0))

    def run(self, position: Progress, seed: int, profile: Profile | None = None) -> Generator[Any, None, None]:
        """Yield the mini-batches of an epoch from a position on, which counts each that was taken before the next."""
        # A worker of torch's DataLoader makes some of the indexes alone, and can't go on from their number.
        is_whole = torch_shard()[1] == 1
        with self._lock:
            measures = is_whole and not self._is_measuring
            self._is_measuring = self._is_measuring or measures
        try:
            while measures and not self.settled:
                if not (yield from self._measure(Progress(position.epoch, position.index), seed, profile or Profile())):
                    return
            rest = self.runner.run(Progress(position.epoch, position.index), seed, profile)
            yield from self._watch(rest) if measures else rest
        finally:
            if measures:
                self._is_measuring = False

    def close(self) -> None:
        """End all workers."""
        self.runner.workers.close()

    def describe(self) -> list[str]:
        """Return what was measured, chosen and refused, as lines for `explain()`."""
        if not self.tried:
            return [f'workers: num_workers="auto" has {self.choice}, and measures the next mini-batches']
        state = self.settled or "so far; it is still measuring"
        lines = [f'workers: num_workers="auto" chose {self.choice}: {state}']
        lines.append(f"  {'per second':>10}  {'waits':>5}  {'memory':>7}")
        for trial in self.tried:
            waits = f"{100 * trial.waits:.0f} %"
            lines.append(f"  {trial.rate:10.1f}  {waits:>5}  {bytes_text(trial.memory):>7}  {trial.choice}")
        return lines + [f"  refused: {what} {why}" for what, why in self.refused.items()]

    def _measure(self, begin: Progress, seed: int, profile: Profile) -> Generator[Any, None, bool]:
        """Yield mini-batches until they tell enough, and plan; return False if the epoch has ended before."""
        try:
            with closing(self.runner.run(begin, seed, profile)) as minibatches:
                for number, minibatch in enumerate(minibatches):
                    if number == 0:
                        self._records.append(profile.records[-1])
                    self._records[-1].count_bytes(minibatch)
                    yield minibatch
                    if self._is_enough():
                        break
                else:
                    return False
        except Exception as error:
            # What fails in processes alone, such as a result that can't be pickled, is no failure of the epoch: it is
            # planned anew without them, and the mini-batch made again, which fails again if it is one.
            if self.choice.worker == "thread":
                raise
            self.refused[PROCESSES] = f"{type(error).__name__}: {error}"
            self._begins = True
            self._take(Choice("thread", 0))
            return True
        self._plan(summarise(self._records))
        return True

    def _is_enough(self) -> bool:
        if perf_counter() < self._next_look:
            return False
        self._next_look = perf_counter() + SHORTEST_SECONDS
        summary = summarise(self._records)
        wanted = FEWEST + 2 * summary.setting.most_in_flight
        return summary.num_minibatches >= wanted and summary.seconds >= SHORTEST_SECONDS

    def _watch(self, minibatches: Generator[Any, None, None]) -> Iterator[Any]:
        """Yield the rest of an epoch; if its rate is not what is expected, the next one is planned anew."""
        taken, began, ended = 0, 0.0, 0.0
        try:
            with closing(minibatches):
                for minibatch in minibatches:
                    began = began or perf_counter()
                    yield minibatch
                    taken, ended = taken + 1, perf_counter()
        finally:
            lasts = ended - began >= SHORTEST_SECONDS and taken >= FEWEST
            if lasts and abs(taken / (ended - began) / self._rate - 1) > CHANGED:
                self.settled, self._begins = "", True

    def _plan(self, summary: Summary) -> None:
        """Take what the latest measurement asks for, or the best if there is nothing new."""
        self.tried, self._begins = ([] if self._begins else self.tried), False
        largest = max(size for record in self._records for size in record.sizes)
        self._minibatch_bytes = max(self._minibatch_bytes, largest)
        self.tried.append(Trial(self.choice, summary.rate, summary.waits, self._memory_of(self.choice)))
        wanted = self._wanted(summary)
        if wanted in [trial.choice for trial in self.tried] or len(self.tried) == MOST_TRIALS:
            self._settle()
        else:
            self._take(wanted)

    def _wanted(self, summary: Summary) -> Choice:
        now, is_inline = self.choice, not self.choice.num_workers
        work = sum(stage.ms for stage in summary.stages) if is_inline else summary.worker_ms
        if is_inline:
            if summary.waits < RARELY:
                return now
            # Whether it needs a core, or waits for something else, is seen without others that wait for the same.
            runs = sum(stage.ms * stage.cpu for stage in summary.stages) / (1 - summary.core_wait)
            self._most = self._cores * (1 if runs > HALF * work else MORE_THAN_CORES)
        step = summary.step_ms + (0.0 if is_inline else summary.main_ms)
        count = ceil(min(work / max(step, 1e-3), self._most)) + 1
        waits_for_lock = now.worker == "thread" and summary.waits >= RARELY and lock_is_short(summary)
        if waits_for_lock and PROCESSES not in self.refused:
            reason, _ = self._processes
            if not reason:
                return self._fit(Choice("process", min(count, self._cores)))
            self.refused[PROCESSES] = reason
        return self._fit(Choice(now.worker, min(count, self._most)))

    def _fit(self, wanted: Choice) -> Choice:
        """Return the most workers that there is memory for, up to a number; the present choice if it is none."""
        windows = find(self.runner.plan.running, InWindows)
        memory = self._options.memory.for_workers(sum(stage.max_size_in_bytes for stage in windows))  # type: ignore[attr-defined]
        for count in range(wanted.num_workers, 0, -1):
            choice = replace(wanted, num_workers=count)
            if (size := self._memory_of(choice)) <= memory:
                return choice
            limit = f"would take {bytes_text(size)}, more than the {bytes_text(memory)} of memory_limit"
            self.refused[str(choice)] = limit
        return self.choice

    def _settle(self) -> None:
        top = max(trial.rate for trial in self.tried)
        best = [trial for trial in self.tried if trial.rate >= top * (1 - SLOWER)][-1]
        self.settled = "your step is the limit" if best.waits < RARELY else "no other number that was tried is faster"
        self._rate = best.rate
        self._take(best.choice)

    def _take(self, choice: Choice) -> None:
        # An epoch that still runs with the former workers has the only reference to them, and ends them.
        plan = make_plan(
            self._like.plan.written,
            replace(self._options, num_workers=choice.num_workers, in_threads=choice.worker == "thread"),
        )
        workers = replace(self._like.workers, worker=choice.worker, num_workers=choice.num_workers)
        self.choice, self.runner = choice, replace(self._like, plan=plan, workers=workers)
        self._records, self._next_look = [], perf_counter() + SHORTEST_SECONDS

    def _memory_of(self, choice: Choice) -> float:
        """Return how many bytes a choice takes, at most."""
        ahead, count = self._options.prefetch_factor, choice.num_workers
        # One mini-batch is in the loop's hands, and threads that run ahead keep some.
        at_once = count * ahead + count + ahead + 1
        if choice.worker == "thread":
            return at_once * self._minibatch_bytes
        # Threads fetch features beside processes.
        at_once += max(2, count, self._cores)
        return at_once * self._minibatch_bytes + count * WORKER_BYTES + self._processes[1]

    @cached_property
    def _processes(self) -> tuple[str, float]:
        """Why there can't be worker processes, empty if there can; and what is copied to shared memory for them."""
        try:
            plan = make_plan(self._like.plan.written, LoaderOptions(num_workers=1, in_threads=False))
        except ValueError as error:  # a stage can't run where processes would need it to
            return str(error), 0.0
        cuts = find(plan.running, InWorkers)
        sent = [stage for cut in cuts for source in cut.inputs for stage in traverse(source) if not stage.inserted]
        if not is_guarded():
            return GUARD_ADVICE, 0.0
        for stage in sent:
            if not can_be_sent(stage):
                return f"{type(stage).__name__}, stage {stage.position}, can't be sent to them", 0.0
        return "" if cuts else "no stage would run in them", bytes_to_copy(sent)


def bytes_to_copy(stages: list[Datapipe]) -> float:
    """Return the size of the tensors of stages that don't lie where other processes can map them."""
    seen: dict[int, Any] = {}
    large: dict[int, torch.Tensor] = {}
    waiting: list[Any] = [*stages]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, ModuleType):
            continue
        seen[id(part)] = part  # kept, so that no other object gets its id
        if not isinstance(part, torch.Tensor):
            waiting.extend(parts_of(part))
        elif part.is_cpu and part.nbytes > SMALL_BYTES:
            large[part.data_ptr()] = part
    places = find_places([*large.values()])
    return float(sum(one.nbytes for one, place in zip(large.values(), places, strict=True) if place is None))
