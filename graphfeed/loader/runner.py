"""Runs a plan, starting at any mini-batch of an epoch, with the workers of a loader."""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from graphfeed.datapipes import IterableSource
from graphfeed.datapipes.pipeline import Observer, traverse
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.explain import describe_setting
from graphfeed.loader.plan import Plan
from graphfeed.loader.profile import Profile, find_caches
from graphfeed.loader.progress import OrderedSource, Progress
from graphfeed.loader.rules import CopiesToDevice
from graphfeed.loader.run import RUN_OF, RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.ops import check_device, set_max_uva_threads
from graphfeed.ops.process import ForkLock, renew_in_child
from graphfeed.storage.features import RowMemory
from graphfeed.storage.memory import Cache


class Servers(ABC):
    """Sampling servers that replace workers (`graphfeed.distributed.SamplingServers`)."""

    addresses: tuple[str, ...]

    @abstractmethod
    def start(self, num_requests: int, timeout: float) -> Executor:
        """Return an executor that sends up to `num_requests` requests to the servers at once."""

    @abstractmethod
    def longest_wait(self, timeout: float) -> float:
        """Return the maximum time for a mini-batch in seconds."""


@dataclass(eq=False)
class Workers:
    """State that a loader keeps from epoch to epoch: an executor, started at the first use, and rows read ahead."""

    given: Executor | Servers | None
    worker: str
    num_workers: int
    timeout: float
    persistent: bool
    pool: Executor | None = field(default=None, init=False)
    """Executor kept for the next epoch."""
    memories: dict[Any, RowMemory] = field(default_factory=dict, init=False)
    """Memory of rows that were read ahead, by stage (`RunContext.memories`)."""
    starting: ForkLock = field(default_factory=ForkLock, init=False)

    def __post_init__(self) -> None:
        self._process = os.getpid()
        renew_in_child(self, Workers._forget)

    @property
    def worker_kind(self) -> str:
        """Return "thread", "process", "server" or "executor"."""
        return "server" if isinstance(self.given, Servers) else "executor" if self.given is not None else self.worker

    def open_executor(self) -> Executor:
        """Return the executor for an epoch."""
        if self.given is not None and not isinstance(self.given, Servers):
            if self._process != os.getpid():
                raise RuntimeError(
                    "this loader's executor belongs to the process that this one was forked from; create an executor "
                    "and a loader here"
                )
            return self.given
        if not self.persistent:
            return self._start()
        # Two threads may start an epoch at the same time.
        with self.starting.lock:
            if self.pool is None:
                self.pool = self._start()
                self._release = weakref.finalize(self, self.pool.shutdown, wait=False, cancel_futures=True)
            return self.pool

    def leave(self, executor: Executor | None) -> None:
        # A user's executor is never shut down, and a persistent one is kept for the next epoch.
        if executor is not None and executor is not self.given and executor is not self.pool:
            executor.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        if self.pool is not None and self._release.detach():
            self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = None

    def _start(self) -> Executor:
        if isinstance(self.given, Servers):
            return self.given.start(self.num_workers, self.timeout)
        if self.worker == "process":
            return ProcessExecutor(self.num_workers, timeout=self.timeout)
        return ThreadExecutor(self.num_workers)

    def _forget(self) -> None:
        # A forked process starts its own workers.
        self.pool = None
        self.memories = {}


@dataclass(frozen=True, eq=False)
class Runner:
    """Runs a plan with workers."""

    plan: Plan
    workers: Workers
    observer: Observer | None
    max_uva_threads: int

    @property
    def caches(self) -> list[tuple[str, Cache]]:
        """The caches of the pipeline and the rows that were read ahead, each with the names of its users."""
        return find_caches(self.plan.running, self.workers.memories.values())

    def run(self, begin: Progress, seed: int, profile: Profile | None = None) -> Generator[Any, None, None]:
        """Yield the mini-batches of an epoch, starting at a position."""
        set_max_uva_threads(self.max_uva_threads)
        pipe = self.plan.running
        for stage in self.plan.find(CopiesToDevice):
            check_device("copy_to", stage.device)  # type: ignore[attr-defined]
        executor = self.workers.open_executor() if self.plan.find(InWorkers) else None
        record = None
        if profile is not None:
            setting = describe_setting(pipe, self.workers.num_workers, self.workers.worker_kind)
            record = profile.open_epoch(setting, self.caches, executor, self.observer)
        observer = self.observer if record is None else record.recorder
        run = RunContext(executor, observer, record, self.workers.memories)
        try:
            # If the stages can't begin at an index, the mini-batches before it are computed again and dropped.
            by_index = self.plan.by_index
            skipped = 0 if by_index else begin.index
            pipe = pipe.with_seed(seed, begin.epoch, begin.index - skipped)
            # `begin` has a digest of the order if it comes from outside, such as a PyTorch sampler.
            if begin.order is not None or self.plan.find(OrderedSource):
                begin.note_order(pipe)
            if self.plan.find(IterableSource):
                pipe = begin.follow_nodes(pipe, replays=not by_index)
            stages = traverse(pipe)
            RUN_OF.update(dict.fromkeys(stages, run))
            run.last_calls.extend(stage.leave_run for stage in stages)
            with closing(run.drive(pipe)) as batches:
                taken: Iterator[Any] = islice(batches, skipped, None)
                yield from taken if record is None else record.watch_reader(taken)
        finally:
            if record is not None:
                record.finish(self.caches, executor)
            run.cancel()
            self.workers.leave(executor)
