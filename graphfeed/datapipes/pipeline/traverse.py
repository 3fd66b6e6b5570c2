"""List, find and replace the stages of a pipeline."""

from typing import TYPE_CHECKING

from graphfeed.datapipes.pipeline.rewriting import Rewritable
from graphfeed.ops.arguments import brief

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


def traverse(pipe: "Datapipe") -> "list[Datapipe]":
    """Return every stage of a pipeline once, each after the stages that it reads from; the pipeline is the last.

    Raises:
        TypeError: Something that is no pipeline.
    """
    if not isinstance(pipe, Rewritable):
        raise TypeError(f"pipe must be a pipeline of stages, but is {brief(pipe)}")
    found: dict[int, Datapipe] = {}

    def visit(stage: "Datapipe") -> None:
        # A stage that two others read from is there once.
        if id(stage) not in found:
            for source in stage.inputs:
                visit(source)
            found[id(stage)] = stage

    visit(pipe)
    return list(found.values())


def find(pipe: "Datapipe", kind: type) -> "list[Datapipe]":
    """Return the stages that are instances of a class or a protocol, sources first.

    Raises:
        TypeError: Something that is no pipeline, or no class.
    """
    stages = traverse(pipe)
    try:
        return [stage for stage in stages if isinstance(stage, kind)]
    except TypeError as error:
        raise TypeError(f"kind must be a class, but is {brief(kind)}") from error


def replace(pipe: "Datapipe", old: "Datapipe", new: "Datapipe") -> "Datapipe":
    """Return a copy of a pipeline with one stage replaced; the given pipeline does not change.

    Raises:
        TypeError: Something that is no pipeline.
        ValueError: The stage is not in the pipeline.
    """
    if not any(stage is old for stage in traverse(pipe)):
        raise ValueError(f"old: {type(old).__name__} is no stage of this pipeline; find() returns those that are")
    return pipe.rewrite(lambda stage: new if stage is old else stage)
