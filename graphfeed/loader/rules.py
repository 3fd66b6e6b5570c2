"""The rules by which a pipeline becomes a plan: small pure functions that start nothing and touch no device.

The first line of a rule's docstring is what `explain()` prints when it changed something.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from graphfeed.datapipes.datapipe import Datapipe, Process, Shardable
from graphfeed.datapipes.transform import Transform
from graphfeed.loader.in_workers import InWorkers
from graphfeed.loader.pin import Pin
from graphfeed.loader.prefetch import Prefetch
from graphfeed.loader.sharder import Sharder


@dataclass(frozen=True)
class LoaderOptions:
    """The input of every rule."""

    num_workers: int = 0
    """0 runs everything where the loader is iterated."""
    in_threads: bool = True
    """Whether workers share this process's memory."""
    prefetch_factor: int = 2
    """How many mini-batches are in flight for each worker."""
    timeout_seconds: float = 600.0


PATIENCE = 2.0
"""A prefetch thread is waited for longer than its workers are, so that the message names who hangs."""


@runtime_checkable
class ReadsFeatures(Protocol):
    """A stage that can tell whether reading is the same in any thread."""

    def may_run_in_threads(self) -> bool:
        """Tell whether worker threads do it as well as the main one."""


@runtime_checkable
class CopiesToDevice(Protocol):
    """A stage that moves mini-batches to a device."""

    device: torch.device | str
    non_blocking: bool


def shard_items(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Workers make the mini-batches whose index they are given."""
    if options.num_workers == 0:
        return pipe
    return pipe.rewrite(lambda stage: Sharder(stage) if isinstance(stage, Shardable) else stage)


def fetch_in_threads(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Features lie in CPU memory and workers are threads, so workers fetch too: it costs no transport there."""
    if options.num_workers == 0 or not options.in_threads:
        return pipe

    def allow(stage: Datapipe) -> Datapipe:
        if isinstance(stage, ReadsFeatures) and stage.runs_in is Process.MAIN and stage.may_run_in_threads():
            return stage.changed(runs_in=Process.WORKER)
        return stage

    return pipe.rewrite(allow)


def runs_before_cut(stage: Datapipe) -> bool:
    """Tell whether a stage and all transforms before it may run in workers."""
    if not isinstance(stage, Transform) or stage.runs_in is not Process.WORKER:
        return False
    return not isinstance(stage.datapipe, Transform) or runs_before_cut(stage.datapipe)


def cut_at_main_stages(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """What comes before the first main-process stage runs in workers."""
    if options.num_workers == 0:
        return pipe
    window = options.num_workers * options.prefetch_factor

    def wrap(stage: Datapipe) -> Datapipe:
        if not runs_before_cut(stage):
            return stage
        return InWorkers(stage, options.num_workers, window, options.timeout_seconds)

    cut = pipe.rewrite(lambda stage: stage if runs_before_cut(stage) else stage.with_inputs(wrap))
    return wrap(cut)


def prefetch_before_copy(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """What comes before the copy to a device runs ahead of it in a thread, and for CUDA ends in pinned memory."""
    if options.num_workers == 0:
        return pipe

    def prefetch(stage: Datapipe) -> Datapipe:
        if not isinstance(stage, Transform) or not isinstance(stage, CopiesToDevice):
            return stage
        source = stage.datapipe
        if torch.device(stage.device).type == "cuda":
            source = Prefetch(Pin(source), timeout_seconds=PATIENCE * options.timeout_seconds)
            return stage.changed(datapipe=source, non_blocking=True)
        # Workers run ahead by themselves; a thread between would only pass mini-batches on.
        if isinstance(source, InWorkers):
            return stage
        return stage.changed(datapipe=Prefetch(source, timeout_seconds=PATIENCE * options.timeout_seconds))

    return pipe.rewrite(prefetch)


def prefetch_main_stages(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """The main-process stages run ahead of the loop in a thread, so that they overlap the user's step."""
    if options.num_workers == 0 or isinstance(pipe, (InWorkers, CopiesToDevice)):
        return pipe
    return Prefetch(pipe, timeout_seconds=PATIENCE * options.timeout_seconds)
