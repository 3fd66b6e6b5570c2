"""What may watch a pipeline while it runs."""

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol

from graphfeed.ops import Key

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe

Side = Literal["maker", "reader"]
"""Of a cut: the side that makes mini-batches, or the one that reads them."""


class Observer(Protocol):
    """Sees what stages do and where the parts of a run wait for each other: `DataLoader(..., observer=...)`.

    The methods are called in the thread that does the work, so several may be called at once; in one thread, what
    begins last ends first. What begins always ends, also where it fails. A run has copies of the pipeline's stages:
    tell them apart by `type(stage)` and `stage.position`. Worker processes are not observed, only how long this process
    waits for them; `DataLoader.profile` measures the stages in processes and on servers too.
    """

    def stage_begin(self, stage: "Datapipe", key: Key | None) -> None:
        """Tell that a stage begins to make a mini-batch.

        One that writes `__iter__` begins when it is asked for the next mini-batch, whose key is not known yet (None),
        and the stages before it begin and end within.
        """

    def stage_end(self, stage: "Datapipe", key: Key | None) -> None:
        """Tell that the stage has made it, or has failed; the key is None if there is no mini-batch, or it has none."""

    def wait_begin(self, cut: "Datapipe", side: Side) -> None:
        """Tell that one side of a cut begins to wait: the reader for a mini-batch, the maker for room to put one.

        The maker's side of `InWorkers` waits only where the executor has nothing to do.
        """

    def wait_end(self, cut: "Datapipe", side: Side) -> None:
        """Tell that the wait is over."""


OBSERVER: ContextVar[Observer | None] = ContextVar("graphfeed_observer", default=None)
"""Who watches what this thread runs."""


def observe_each(stage: "Datapipe", minibatches: Iterable[Any], observer: Observer) -> Iterator[Any]:
    """Yield what a stage's own loop makes, and tell the observer of each."""
    iterator = iter(minibatches)
    while True:
        key = None
        # The key is not known before there is a mini-batch.
        observer.stage_begin(stage, None)
        try:
            minibatch = next(iterator)
            key = getattr(minibatch, "key", None)
        except StopIteration:
            return
        finally:
            observer.stage_end(stage, key)
        yield minibatch
