"""What happens when a stage is iterated: random streams are assigned, an observer is told, torch's workers share."""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch.utils.data import get_worker_info

from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each
from graphfeed.datapipes.pipeline.streams import assign_streams
from graphfeed.datapipes.pipeline.traverse import traverse

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


TORCH_LOADER = "torch.utils.data._utils.fetch"
"""The module by which torch's DataLoader iterates a data set."""


def begins(run: "Callable[[Any], Iterator[Any]]") -> "Callable[[Any], Iterator[Any]]":
    """Wrap a stage's `__iter__`. Without a loader, the first stage that is iterated sees the whole pipeline."""

    @wraps(run)
    def iterate(stage: "Datapipe") -> Iterator[Any]:
        # This is no generator, so the frame before is that of whoever iterates.
        warn_of_repeats(stage, caller=sys._getframe(1).f_globals.get("__name__", ""))
        minibatches = run(assign_streams(stage))
        # A loop that calls super().__iter__() is observed once.
        inner = type(stage).__iter__ is not iterate
        # Without a loop of its own, a stage is observed where it is called.
        observer = None if inner or stage.inserted or not stage.loops else OBSERVER.get()
        return minibatches if observer is None else observe_each(stage, minibatches, observer)

    return iterate


def key_source(source: Any, seed: int, epoch: int, start: int) -> "Datapipe":
    # Somebody chose the epoch, so there is nothing to warn of when it is repeated.
    keyed: Datapipe = source.keyed(seed, epoch, start).changed(epoch_was_chosen=True)
    return keyed


def warn_of_repeats(pipe: "Datapipe", caller: str) -> None:
    """Warn if torch's DataLoader would draw the same in each epoch; `caller` is the module that iterates."""
    worker = get_worker_info()
    # In a worker of torch's, whatever is not of this package iterates for torch's loader.
    if caller != TORCH_LOADER and (worker is None or caller.startswith("graphfeed.")):
        return
    stages = traverse(pipe)
    draws = any(stage.needs_key or getattr(stage, "shuffle", False) for stage in stages)
    chosen = any(getattr(stage, "epoch_was_chosen", False) for stage in stages)
    if draws and not chosen and (worker is None or worker.id == 0):
        warnings.warn(
            "torch's DataLoader repeats epoch 0 of this pipeline in each of its epochs: the same shuffling and the "
            "same sampling; use graphfeed.DataLoader(pipe), which has workers too, or give torch's "
            "pipe.with_seed(seed, epoch) in each epoch",
            stacklevel=3,
        )


def torch_shard() -> tuple[int, int]:
    """Return the id of this torch DataLoader worker and the number of workers; (0, 1) outside of a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
