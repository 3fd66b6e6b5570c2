"""Stages that map each mini-batch to one mini-batch."""

import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterDataPipe

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.datapipes.minibatch import Batch, MiniBatch
from graphfeed.datapipes.pipeline.observer import OBSERVER, Observer
from graphfeed.datapipes.pipeline.seeding import SavedGenerators, call_seeded
from graphfeed.datapipes.pipeline.traverse import check_source
from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.ops import RUNNING, Key
from graphfeed.ops.arguments import check_fields
from graphfeed.ops.process import load_entry_point
from graphfeed.storage import HeteroItemSet, ItemSet


class Transform(Datapipe[Batch], one_to_one=True, own_loop=False, seeded=False):
    """A stage that maps one mini-batch to another. Subclasses implement `__call__`, which must not modify its argument.

    Such a stage can run for any mini-batch, anywhere; `runs_in` chooses where (see `Placement`). A chain of them
    after an `ItemSampler` can be sharded, and resumed without recomputation. A subclass that implements `__iter__`, to
    drop or add mini-batches, runs in the main process, and so do all stages after it. A stage can't set its own
    attributes after `__init__`, as workers have copies of it.

    While a user-defined stage runs, the global generators of torch, NumPy and Python are seeded by the mini-batch's
    key, so its draws are the same with `num_workers=0` and with any number of worker processes; other generators are
    not seeded. In worker threads, this holds for torch functions that accept a `generator`, such as `torch.rand` and
    those that `torch.distributions` uses, but not for dropout, attention with dropout, NumPy and Python: threads share
    those generators, and a warning is issued if the first calls of the stage use them. Seeding takes about 0.01 ms per
    mini-batch and stage, and in the main thread 0.04 ms more per chain of such stages. A class that never draws from
    global generators says `seeded=False` to skip it. `minibatch.generator()` gives the same values everywhere.

    Class arguments:
        traits: The `Traits` of the class, as in `class Report(Transform, runs_in=Placement.MAIN)`.
    """

    datapipe: Datapipe[Any]
    """The stage to read from, or any iterable of mini-batches."""

    def __post_init__(self) -> None:
        if isinstance(self.datapipe, (ItemSet, HeteroItemSet)):
            raise TypeError(f"{type(self).__name__} needs mini-batches, but got items; put an ItemSampler in between")
        if not isinstance(self.datapipe, Datapipe):
            check_source(self)
            # A torch datapipe that wraps a stage is converted to an equivalent stage.
            wraps = isinstance(self.datapipe, IterDataPipe)
            converted = load_entry_point("converters", "as_stage")(self.datapipe) if wraps else None
            self.__dict__["datapipe"] = IterableSource(self.datapipe) if converted is None else converted
        check_fields(self)

    def __call__(self, minibatch: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement __call__")

    def __iter__(self) -> Iterator[Any]:
        own_loop = self.traits.own_loop
        observer = None if own_loop else OBSERVER.get()
        stages: list[Transform[Any]] = [self]
        # Transforms in a row are called together, so that global generators are saved and restored only once.
        while not own_loop and isinstance(source := stages[0].datapipe, Transform) and not source.traits.own_loop:
            stages.insert(0, source)
        for minibatch in stages[0].datapipe:
            yield apply_stages(stages, minibatch, observer)

    def __len__(self) -> int:
        if not self.traits.one_to_one:
            raise TypeError(f"the number of mini-batches of {type(self).__name__} is unknown; it has no __len__")
        return length(self.datapipe)


def apply_stages(
    stages: Iterable[Transform[Any]],
    minibatch: Any,
    observer: Observer | None = None,
    function: Callable[[Any], Any] | None = None,
) -> Any:
    """Call stages in order for one mini-batch, and return the last result. An observer is notified of each call.

    An exception gets a note with the stage, the mini-batch and the worker. If there is a `function`, it is called
    instead of the stage, which must be the only one.
    """
    kept: SavedGenerators | None = None
    try:
        for stage in stages:
            work, key = stage if function is None else function, getattr(minibatch, "key", None)
            if observer is not None:
                observer.stage_begin(stage, key)
            running = RUNNING.set(stage)
            try:
                if stage.traits.seeded and key is not None:
                    kept = kept or SavedGenerators()
                    result = call_seeded(stage, work, minibatch, key, kept)
                else:
                    # Stages that are not seeded draw from the generators in the program's own state.
                    if kept is not None:
                        kept.put_back()
                    result = work(minibatch)
                if result is None:
                    raise TypeError(f"{type(stage).__name__} returned None; return the mini-batch from its __call__")
            except BaseException as error:  # SystemExit too
                error.add_note(f"{describe_place(stage, key)}, in {worker_name()}")
                raise
            finally:
                RUNNING.reset(running)
                if observer is not None:
                    observer.stage_end(stage, key)
            if isinstance(result, MiniBatch) and result is not minibatch:
                inherit(result, minibatch, key)
            minibatch = result
    finally:
        if kept is not None:
            kept.put_back()
    return minibatch


def inherit(result: MiniBatch, minibatch: Any, key: Key | None) -> None:
    """Give a new mini-batch the key and the attributes of the one that it was made from.

    The key makes later draws the same anywhere. `dataclasses.replace` leaves out attributes that are not fields; to
    drop such an attribute, a stage sets it to None.
    """
    if result.key is None:
        result.key = key
    if isinstance(minibatch, MiniBatch):
        for name in vars(minibatch).keys() - vars(result).keys():
            setattr(result, name, getattr(minibatch, name))


def describe_place(stage: Datapipe, key: Key | None) -> str:
    """Describe a stage and a mini-batch in it, for error messages."""
    text = f"in {type(stage).__name__}, stage {stage.position}"
    return text if key is None else f"{text}, mini-batch {key.index} of epoch {key.epoch}"


def worker_name() -> str:
    """Describe the current process or thread."""
    process, thread = multiprocessing.current_process(), threading.current_thread()
    if process.name != "MainProcess":
        return f"worker process {process.name} (pid {process.pid})"
    return "the main thread" if thread is threading.main_thread() else f"worker thread {thread.name}"
