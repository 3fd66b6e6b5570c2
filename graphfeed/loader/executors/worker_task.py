"""The function that workers run: from the index of a mini-batch to the finished mini-batch."""

import io
import multiprocessing
import pickle
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

from graphfeed.datapipes import Shardable, Transform, apply_stages, describe_place, worker_name
from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.executors.main_module import is_importable
from graphfeed.loader.profile.recorder import Measured, Recorder
from graphfeed.loader.transport.pickling import ByValue, dump
from graphfeed.ops import Key
from graphfeed.ops.memory import pinning
from graphfeed.ops.process import install_hint


@dataclass(frozen=True)
class WorkerTask:
    """The stages that workers run."""

    source: Shardable | None
    """Builds mini-batches from seed, epoch and index; None if the mini-batches are sent to the workers."""
    stages: tuple[Transform, ...]
    is_measured: bool = False
    """Whether to return the spans of the stages with each mini-batch if there is no observer."""
    pins: bool = False
    """Whether to pin large results."""

    def __call__(self, task: Any, observer: Observer | None = None) -> Any:
        """Return the finished mini-batch for (seed, epoch, index), or for a mini-batch that the source yielded."""
        if self.is_measured and observer is None:
            recorder = Recorder()
            return Measured(self(task, recorder), recorder.spans)
        with pinning() if self.pins else nullcontext():
            minibatch = task if self.source is None else make(self.source, Key(*task), observer)
            return apply_stages(self.stages, minibatch, observer)


def make(source: Any, key: Key, observer: Observer | None) -> Any:
    """Return one mini-batch of a source; exceptions get a note with the index and the worker."""
    if observer is not None:
        observer.stage_begin(source, key)
    try:
        return source.keyed(key.seed, key.epoch, 0).minibatch(key.index)
    except BaseException as error:  # SystemExit too
        error.add_note(f"{describe_place(source, key)}, in {worker_name()}")
        raise
    finally:
        if observer is not None:
            observer.stage_end(source, key)


def pack_work(work: WorkerTask) -> bytes:
    """Pickle the stages for other processes; code that those can't import is pickled by value, using cloudpickle."""
    try:
        return dump_by_reference(work)
    except Exception as error:
        failure = error
    remedy = "define it in a module that they can import, or use worker='thread'"
    try:
        cloudpickle = import_module("cloudpickle")
    except ImportError:
        remedy += f"; or install cloudpickle: {install_hint('notebook')}"
    else:
        try:
            by_value: bytes = cloudpickle.dumps(work, protocol=5)
            return by_value
        except Exception as error:
            failure = error
    raise pickle.PicklingError(
        f"{name_culprit(work)} can't be sent to worker processes ({type(failure).__name__}: {failure!s:.70}); {remedy}"
    ) from failure


def dump_by_reference(value: Any) -> bytes:
    # Tensors by value: torch would also write their addresses, and workers unpickle equal bytes only once.
    file = io.BytesIO()
    ByReference(file, protocol=5).dump(value)
    return file.getvalue()


class ByReference(ByValue):
    """Rejects functions and classes of a main module that other processes can't import."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__" and not is_importable():
            raise pickle.PicklingError(f"{value.__qualname__} was defined in a notebook or an interactive session")
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return NotImplemented  # torch also pickles a tensor that was computed from others
        return super().reducer_override(value)


def name_culprit(work: WorkerTask) -> str:
    for stage in (work.source, *work.stages):
        try:
            dump_by_reference(stage)
        except Exception:
            return f"{type(stage).__name__}, stage {stage.position},"  # type: ignore[union-attr]
    return "the pipeline"


# Each process unpickles and maps the stages of a loader once.
@lru_cache(maxsize=4)
def unpack_work(packed: bytes) -> WorkerTask:
    if multiprocessing.parent_process() is not None:
        # A forked process has no torch thread pool; an operation with several threads would wait for it forever.
        torch.set_num_threads(1)
    try:
        work: WorkerTask = pickle.loads(packed)
    except AttributeError as error:
        error.add_note(
            "worker processes import your script without its `if __name__ == '__main__':` block: define the functions "
            "and classes of stages above it"
        )
        raise
    return work


def work_here(work: bytes, task: Any) -> Any:
    return unpack_work(work)(task)


def work_packed(work: bytes, task: bytes) -> bytes:
    # For executors that pass bytes. The id of the run only distinguishes equal tasks, see InWorkers.begin().
    _, given = pickle.loads(task)
    return dump(work_here(work, given))
