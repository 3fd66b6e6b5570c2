"""List, find and replace the stages of a pipeline."""

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.rewriting import stages_of


def traverse(pipe: Datapipe) -> list[Datapipe]:
    """Return every stage of a pipeline once, each after the stages that it reads from."""
    return stages_of(pipe)


def find(pipe: Datapipe, kind: type) -> list[Datapipe]:
    """Return the stages that are instances of a class or a protocol, sources first."""
    return [stage for stage in traverse(pipe) if isinstance(stage, kind)]


def replace(pipe: Datapipe, old: Datapipe, new: Datapipe) -> Datapipe:
    """Return a copy of a pipeline with one stage replaced; the given pipeline does not change.

    Raises:
        ValueError: The stage is not in the pipeline.
    """
    if not any(stage is old for stage in traverse(pipe)):
        raise ValueError(f"{type(old).__name__} is no stage of this pipeline; find() returns those that are")
    return pipe.rewrite(lambda stage: new if stage is old else stage)
