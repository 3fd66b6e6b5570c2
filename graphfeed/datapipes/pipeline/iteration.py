"""What happens when a stage is iterated: random streams are assigned, an observer is told, torch's workers share."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch.utils.data import get_worker_info

from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each
from graphfeed.datapipes.pipeline.streams import assign_streams

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


def begins(run: "Callable[[Any], Iterator[Any]]") -> "Callable[[Any], Iterator[Any]]":
    """Wrap a stage's `__iter__`. Without a loader, the first stage that is iterated sees the whole pipeline."""

    @wraps(run)
    def iterate(stage: "Datapipe") -> Iterator[Any]:
        minibatches = run(assign_streams(stage))
        # A loop that calls super().__iter__() is observed once.
        inner = type(stage).__iter__ is not iterate
        observer = None if inner or stage.inserted or not stage.loops else OBSERVER.get()
        return minibatches if observer is None else observe_each(stage, minibatches, observer)

    return iterate


def torch_shard() -> tuple[int, int]:
    """Return the id of this torch DataLoader worker and the number of workers; (0, 1) outside of a worker."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
