"""Observation of a pipeline while it runs."""

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol

from graphfeed.ops import Key

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe

Side = Literal["maker", "reader"]
"""Side of a cut: the one that produces mini-batches, or the one that reads them."""


class Observer(Protocol):
    """Is notified of what stages do and where a run waits. Pass it to the loader: `DataLoader(..., observer=...)`.

    The methods are called in the thread that does the work, so several may be called at once; within a thread, calls
    are properly nested. Every begin is followed by an end, even after an error. A run has copies of the pipeline's
    stages: identify them by `type(stage)` and `stage.position`. Worker processes are not observed, only how long this
    process waits for them; `DataLoader.profile` measures the stages in processes and on servers too.
    """

    def stage_begin(self, stage: "Datapipe", key: Key | None) -> None:
        """Called when a stage starts to produce a mini-batch.

        A stage that implements `__iter__` starts when its next mini-batch is requested. Its key is not known yet
        (None), and the stages before it begin and end in between.
        """

    def stage_end(self, stage: "Datapipe", key: Key | None) -> None:
        """Called when the stage has finished or failed. The key is None without a mini-batch, or if it has no key."""

    def wait_begin(self, cut: "Datapipe", side: Side) -> None:
        """Called when one side of a cut starts to wait: the reader for a mini-batch, the maker for a free slot.

        The maker's side of `InWorkers` waits only while the executor is idle.
        """

    def wait_end(self, cut: "Datapipe", side: Side) -> None:
        """Called when the wait is over."""


OBSERVER: ContextVar[Observer | None] = ContextVar("graphfeed_observer", default=None)
"""Observer of the stages that run in this thread."""


def observe_each(stage: "Datapipe", minibatches: Iterable[Any], observer: Observer) -> Iterator[Any]:
    """Yield the mini-batches of a stage's own loop, and notify the observer of each."""
    iterator = iter(minibatches)
    while True:
        key = None
        # The key is not known before the mini-batch exists.
        observer.stage_begin(stage, None)
        try:
            minibatch = next(iterator)
            key = getattr(minibatch, "key", None)
        except StopIteration:
            return
        finally:
            observer.stage_end(stage, key)
        yield minibatch
