"""Iteration of a stage: assignment of random streams, observation, and sharding among torch's workers."""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch.utils.data import get_worker_info

from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each
from graphfeed.datapipes.pipeline.streams import assign_streams
from graphfeed.datapipes.pipeline.traverse import Rewritable, traverse

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


TORCH_LOADER = "torch.utils.data._utils.fetch"
"""The module in which torch's DataLoader iterates a dataset."""


def wrap_iter(run: "Callable[[Any], Iterator[Any]]") -> "Callable[[Any], Iterator[Any]]":
    """Wrap a stage's `__iter__`. Without a loader, the stage that is iterated first prepares the whole pipeline."""

    @wraps(run)
    def iterate(stage: "Datapipe") -> Iterator[Any]:
        # This function is not a generator, so the previous frame is the one that iterates.
        warn_of_repeats(stage, caller=sys._getframe(1))
        minibatches = run(assign_streams(stage))
        # A loop that calls super().__iter__() is observed once.
        inner = type(stage).__iter__ is not iterate
        # A stage without its own loop is observed where it is called.
        observer = None if inner or stage.traits.inserted or not stage.traits.own_loop else OBSERVER.get()
        return minibatches if observer is None else observe_each(stage, minibatches, observer)

    return iterate


def key_source(source: Any, seed: int, epoch: int, start: int) -> "Datapipe":
    # The epoch was chosen explicitly, so repeating it needs no warning.
    keyed: Datapipe = source.keyed(seed, epoch, start).changed(_epoch_was_chosen=True)
    return keyed


def warn_of_repeats(pipe: "Datapipe", caller: FrameType) -> None:
    """Warn if torch's DataLoader would repeat the same draws in each epoch; `caller` is the frame that iterates."""
    worker = get_worker_info()
    # In a torch worker, any caller but the next stage iterates for torch's loader.
    is_inner = worker is None or isinstance(caller.f_locals.get("self"), Rewritable)
    if is_inner and caller.f_globals.get("__name__") != TORCH_LOADER:
        return
    stages = traverse(pipe)
    draws = any(stage.traits.draws or getattr(stage, "shuffle", False) for stage in stages)
    chosen = any(stage._epoch_was_chosen for stage in stages)
    if draws and not chosen and (worker is None or worker.id == 0):
        warnings.warn(
            "torch's DataLoader repeats epoch 0 of this pipeline in each of its epochs: the same shuffling and the "
            "same sampling; use graphfeed.DataLoader(pipe), which also has workers, or give torch's "
            "pipe.with_seed(seed, epoch) in each epoch",
            stacklevel=3,
        )


def torch_shard() -> tuple[int, int]:
    """Return the id of this torch DataLoader worker and the number of workers; (0, 1) outside of a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
