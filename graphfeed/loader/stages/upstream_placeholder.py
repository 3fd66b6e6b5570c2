"""A placeholder for the stages that do not run in a worker."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.streams import stream_numbers
from graphfeed.datapipes.transform import Transform


class UpstreamPlaceholder(Datapipe):
    """Takes the place, in what a worker is sent, of the stages that run elsewhere."""

    place: int

    inserted = True

    @property
    def position(self) -> int:
        """The position of the last stage that it replaces."""
        return self.place

    def __iter__(self) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())


def detach(head: Datapipe, stages: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Return some stages without the stages before them, which may not be picklable, or belong to an epoch."""
    detached: list[Transform] = []
    end: Datapipe = UpstreamPlaceholder(head.position)
    for stage in stages:
        streams = stream_numbers(stage)
        swap = partial(replace_one, old=stage.datapipe, new=end)
        detached.append((stage.changed(**streams) if streams else stage).with_inputs(swap))
        end = detached[-1]
    return tuple(detached)


def replace_one(source: Datapipe, old: Datapipe, new: Datapipe) -> Datapipe:
    """Return a stage's input, or its replacement."""
    return new if source is old else source
