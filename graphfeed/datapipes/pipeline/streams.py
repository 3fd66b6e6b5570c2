"""Random streams, which keep the draws of a stage independent of those of other stages."""

from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from graphfeed.datapipes.pipeline.traverse import traverse

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


class Streams:
    """The random streams of a stage."""

    random_stream: ClassVar[int | None] = None
    """Separates the stage's draws from those of others. Assigned in the copy that runs, if the pipeline has a join."""
    seeded_stream: ClassVar[int | None] = None
    """Like `random_stream`, for draws from global generators."""

    @cached_property
    def ends_chain(self) -> bool:
        """Whether this stage and all earlier ones read from at most one stage."""
        inputs = self.inputs  # type: ignore[attr-defined]
        return not inputs or (len(inputs) == 1 and inputs[0].ends_chain)

    @cached_property
    def number(self) -> int:
        """Number of the stage's random stream: the number of earlier stages that draw, unless one is assigned."""
        assigned = self.random_stream
        return sum(stage.traits.draws for stage in traverse(self)[:-1]) if assigned is None else assigned  # type: ignore[arg-type]

    @cached_property
    def seeded_number(self) -> int:
        """Number of earlier stages that are `seeded`, unless a stream is assigned."""
        assigned = self.seeded_stream
        return sum(stage.traits.seeded for stage in traverse(self)[:-1]) if assigned is None else assigned  # type: ignore[arg-type]


def assign_streams(pipe: "Datapipe") -> "Datapipe":
    """Return the pipeline with a random stream for each stage that draws, counted from its sources.

    A chain is returned unchanged, since its stages count those before them. Stages in parallel branches would have the
    same count, and so the same draws. A pipeline that already has streams keeps them.
    """
    if pipe.ends_chain or all(
        getattr(stage, stream) is not None for stage in traverse(pipe) for stream in streams_of(stage)
    ):
        return pipe
    numbers = {"random_stream": count(), "seeded_stream": count()}
    return pipe.rewrite(lambda stage: with_streams(stage, {name: next(numbers[name]) for name in streams_of(stage)}))


def keep_streams(stage: Any) -> Any:
    """Return a stage that keeps its streams whatever is inserted before it."""
    numbers = {"random_stream": "number", "seeded_stream": "seeded_number"}
    return with_streams(stage, {stream: getattr(stage, numbers[stream]) for stream in streams_of(stage)})


def streams_of(stage: "Datapipe") -> list[str]:
    return ["random_stream"] * stage.traits.draws + ["seeded_stream"] * stage.traits.seeded


def with_streams(stage: "Datapipe", streams: dict[str, int]) -> "Datapipe":
    return stage.changed(**streams) if streams else stage
