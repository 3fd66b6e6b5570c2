"""Runs a plan: a whole epoch, or a part of it."""

from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from graphfeed.datapipes import Source
from graphfeed.datapipes.pipeline import Observer, find, traverse
from graphfeed.loader.explain import describe_setting
from graphfeed.loader.plan import Plan
from graphfeed.loader.profile import EpochRecord, Profile
from graphfeed.loader.progress import Progress
from graphfeed.loader.rules import CopiesToDevice
from graphfeed.loader.run import RUN_OF, LeavesRun, RunContext
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.workers import Workers
from graphfeed.ops import check_device, set_max_uva_threads


@dataclass(frozen=True, eq=False)
class Runner:
    """A plan, and who runs it."""

    plan: Plan
    workers: Workers
    observer: Observer | None
    max_uva_threads: int

    def run(self, begin: Progress, seed: int, profile: Profile | None = None) -> Generator[Any, None, None]:
        """Yield the mini-batches of an epoch from a position on."""
        set_max_uva_threads(self.max_uva_threads)
        pipe = self.plan.running
        for stage in find(pipe, CopiesToDevice):
            check_device("copy_to", stage.device)  # type: ignore[attr-defined]
        executor = self.workers.take() if find(pipe, InWorkers) else None
        run = RunContext(executor, *self.begin_record(executor, profile))
        try:
            # Where the stages can't begin at an index, the mini-batches before it are made again, and dropped.
            by_index = all(stage.one_to_one or isinstance(stage, Source) for stage in traverse(pipe))
            skipped = 0 if by_index else begin.index
            pipe = pipe.with_seed(seed, begin.epoch, begin.index - skipped)
            # `begin` gets a digest of the order, where a source reads it from somewhere else.
            begin.note_order(pipe)
            RUN_OF.update(dict.fromkeys(traverse(pipe), run))
            for stage in find(pipe, LeavesRun):
                run.when_cancelled(stage.leave_run)  # type: ignore[attr-defined]
            with closing(run.drive(pipe)) as batches:
                taken: Iterator[Any] = islice(batches, skipped, None)
                yield from taken if run.record is None else run.record.watch_reader(taken)
        finally:
            if run.record is not None:
                run.record.finish(self.plan.running, executor)
            run.cancel()
            self.workers.leave(executor)

    def begin_record(
        self, executor: Executor | None, profile: Profile | None
    ) -> tuple[Observer | None, EpochRecord | None]:
        if profile is None:
            return self.observer, None
        setting = describe_setting(self.plan.running, self.workers.num_workers, self.workers.who)
        record = profile.begin(setting, self.plan.running, executor, self.observer)
        return record.recorder, record
