"""A placeholder for the stages that do not run in a worker."""

from collections.abc import Iterable, Iterator
from typing import Any

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.datapipes.pipeline import keep_streams


class UpstreamPlaceholder(Datapipe):
    """Stands in for the stages that run elsewhere, as in the pipeline that is sent to a worker."""

    last_position: int
    minibatches: Iterable[Any] = ()
    """What those give, if a part of a pipeline is iterated without them."""

    inserted = True

    @property
    def position(self) -> int:
        """The position of the last stage that it replaces."""
        return self.last_position

    def __iter__(self) -> Iterator[Any]:
        return iter(self.minibatches)


def detach(head: Datapipe, stages: tuple[Transform, ...], minibatches: Iterable[Any] = ()) -> tuple[Transform, ...]:
    """Return some stages without those before them, which may not be picklable, or belong to an epoch."""
    detached: list[Transform] = []
    end: Datapipe = UpstreamPlaceholder(head.position, minibatches)
    for stage in stages:

        def swap(source: Datapipe, old: Datapipe = stage.datapipe, new: Datapipe = end) -> Datapipe:
            return new if source is old else source

        detached.append(keep_streams(stage).with_inputs(swap))
        end = detached[-1]
    return tuple(detached)
