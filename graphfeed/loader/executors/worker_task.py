"""What a worker does: a mini-batch's index in, the finished mini-batch out."""

import multiprocessing
import pickle
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Shardable
from graphfeed.datapipes.pipeline.observer import Observer
from graphfeed.datapipes.transform import Transform, call, worker_name
from graphfeed.loader.transport.pickling import dump
from graphfeed.ops import Key


@dataclass(frozen=True)
class WorkerTask:
    """The stages that workers run."""

    source: Shardable | None
    """Makes mini-batches by seed, epoch and index; None if they are sent."""
    stages: tuple[Transform, ...]

    def __call__(self, task: Any, observer: Observer | None = None) -> Any:
        """Return the finished mini-batch of (seed, epoch, index), or of a mini-batch."""
        minibatch = task if self.source is None else make(self.source, Key(*task), observer)
        for stage in self.stages:
            minibatch = call(stage, minibatch, observer)
        return minibatch


def make(source: Any, key: Key, observer: Observer | None) -> Any:
    """Return one mini-batch of a source; a failure is noted with its index and the worker."""
    if observer is not None:
        observer.stage_begin(source, key)
    try:
        return source.keyed(key.seed, key.epoch, 0).minibatch(key.index)
    except Exception as error:
        note = f"in {type(source).__name__}, stage 1, mini-batch {key.index} of epoch {key.epoch}"
        error.add_note(f"{note}, in {worker_name()}")
        raise
    finally:
        if observer is not None:
            observer.stage_end(source, key)


@lru_cache(maxsize=4)
def unpack_work(packed: bytes) -> WorkerTask:
    """Return the stages that a loader of this machine sent; each is mapped and made once a process."""
    if multiprocessing.parent_process() is not None:
        # A process that was forked off one whose torch threads had run waits for ever when it calls on its own.
        torch.set_num_threads(1)
    work: WorkerTask = pickle.loads(packed)
    return work


def work_here(work: bytes, task: Any) -> Any:
    """Do the work in another process."""
    return unpack_work(work)(task)


def work_packed(work: bytes, task: bytes) -> bytes:
    """Do the work in another process that takes and gives bytes."""
    return dump(work_here(work, pickle.loads(task)))
