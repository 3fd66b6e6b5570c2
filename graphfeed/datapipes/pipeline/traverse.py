"""Walk and change the graph of stages."""

from graphfeed.datapipes.datapipe import Datapipe, stages_of


def traverse(pipe: Datapipe) -> list[Datapipe]:
    """Return every stage once, each after those that it reads from."""
    return stages_of(pipe)


def find(pipe: Datapipe, kind: type) -> list[Datapipe]:
    """Return the stages of a class, its subclasses or a protocol, sources first."""
    return [stage for stage in traverse(pipe) if isinstance(stage, kind)]


def replace(pipe: Datapipe, old: Datapipe, new: Datapipe) -> Datapipe:
    """Return the pipeline with another stage in place of one; the given one stays as it is.

    Raises:
        ValueError: The pipeline hasn't got the stage.
    """
    if not any(stage is old for stage in traverse(pipe)):
        raise ValueError(f"{type(old).__name__} is no stage of this pipeline; find() returns those that are")
    return pipe.rewrite(lambda stage: new if stage is old else stage)
