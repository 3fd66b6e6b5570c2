"""Random streams: what sets the draws of one stage apart from those of the others."""

from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from graphfeed.datapipes.pipeline.traverse import traverse

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


class Streams:
    """The random streams of a stage."""

    random_stream: ClassVar[int | None] = None
    """What sets the stage's draws apart from those of others; assigned in the copy that runs, if there is a join."""
    foreign: ClassVar[bool] = False
    """Whether the stage was written outside of this package, and may draw from generators that it does not own. A class
    from there that never does may set it to False."""
    foreign_stream: ClassVar[int | None] = None
    """Like `random_stream`, for those draws."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith("graphfeed."):
            cls.foreign = vars(cls).get("foreign", True)

    @cached_property
    def number(self) -> int:
        """The number of the stage's random stream: how many stages that draw come before it, unless one is assigned."""
        assigned = self.random_stream
        return sum(stage.needs_key for stage in traverse(self)[:-1]) if assigned is None else assigned  # type: ignore[arg-type]

    @cached_property
    def foreign_number(self) -> int:
        """How many foreign stages come before this one, unless a stream is assigned."""
        assigned = self.foreign_stream
        return sum(stage.foreign for stage in traverse(self)[:-1]) if assigned is None else assigned  # type: ignore[arg-type]


def assign_streams(pipe: "Datapipe") -> "Datapipe":
    """Return the pipeline with a random stream for each stage that draws, counted from its sources on.

    A chain is returned as it is, since a stage there counts those before it. Stages in parallel branches would count,
    and draw, alike. A pipeline that has its streams keeps them.
    """
    stages = traverse(pipe)
    has_join = any(len(stage.inputs) > 1 for stage in stages)
    if not has_join or all(getattr(stage, stream) is not None for stage in stages for stream in streams_of(stage)):
        return pipe
    numbers = {"random_stream": count(), "foreign_stream": count()}
    return pipe.rewrite(lambda stage: with_streams(stage, {name: next(numbers[name]) for name in streams_of(stage)}))


def keep_streams(stage: Any) -> Any:
    """Return a stage that keeps its streams whatever is put before it."""
    numbers = {"random_stream": "number", "foreign_stream": "foreign_number"}
    return with_streams(stage, {stream: getattr(stage, numbers[stream]) for stream in streams_of(stage)})


def streams_of(stage: "Datapipe") -> list[str]:
    return ["random_stream"] * stage.needs_key + ["foreign_stream"] * stage.foreign


def with_streams(stage: "Datapipe", streams: dict[str, int]) -> "Datapipe":
    return stage.changed(**streams) if streams else stage
