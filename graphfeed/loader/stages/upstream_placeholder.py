"""What workers are sent in place of the stages that run elsewhere."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.transform import Transform


class UpstreamPlaceholder(Datapipe):
    """Stands, where a worker does its part, for the stages before it that run elsewhere."""

    place: int

    inserted = True

    @property
    def position(self) -> int:
        """Place in the chain of the last stage that it stands for."""
        return self.place

    def __iter__(self) -> Iterator[Any]:
        """Give nothing."""
        return iter(())


def detach(head: Datapipe, stages: tuple[Transform, ...]) -> tuple[Transform, ...]:
    """Return the stages of a region without what comes before it, which may not pickle, or hold an epoch."""
    detached: list[Transform] = []
    end: Datapipe = UpstreamPlaceholder(head.position)
    for stage in stages:
        drawing = stage.changed(random_stream=stage.number) if stage.needs_key else stage
        swap = partial(replace_one, old=stage.datapipe, new=end)
        detached.append(drawing.with_inputs(swap))
        end = detached[-1]
    return tuple(detached)


def replace_one(source: Datapipe, old: Datapipe, new: Datapipe) -> Datapipe:
    """Return a stage's input, or what takes its place."""
    return new if source is old else source
