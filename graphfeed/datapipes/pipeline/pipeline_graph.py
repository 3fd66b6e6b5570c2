"""The graph of stages as a table, as text and as a picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.description import describe_stage
from graphfeed.datapipes.pipeline.optional import import_optional
from graphfeed.datapipes.pipeline.traverse import find, replace, traverse

DataPipeGraph: TypeAlias = dict[int, tuple[Datapipe, "DataPipeGraph"]]
"""A stage by its id, with the graphs of the stages that it reads from."""


def traverse_dps(datapipe: Datapipe) -> DataPipeGraph:
    """Return the graph that ends with a stage; `traverse` lists its stages instead.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> pipe = ItemSampler(ItemSet(3, names="seeds"), 1).transform()
        >>> ((last, sources),) = traverse_dps(pipe).values()
        >>> last is pipe, [type(stage).__name__ for stage, _ in sources.values()]
        (True, ['ItemSampler'])
    """
    if not isinstance(datapipe, Datapipe):
        raise TypeError(f"datapipe must be a pipeline of stages, but is a {type(datapipe).__name__}")
    sources: DataPipeGraph = {}
    for stage in datapipe.inputs:
        sources.update(traverse_dps(stage))
    return {id(datapipe): (datapipe, sources)}


def last_of(graph: DataPipeGraph) -> Datapipe:
    """Return the stage that a graph ends with."""
    ((stage, _),) = graph.values()
    return stage


def find_dps(graph: DataPipeGraph, dp_type: type) -> list[Datapipe]:
    """Return the stages of a class or its subclasses, each once, sources first; `find` takes a pipeline instead."""
    return find(last_of(graph), dp_type)


def replace_dp(graph: DataPipeGraph, old_datapipe: Datapipe, new_datapipe: Datapipe) -> DataPipeGraph:
    """Return the graph with another stage in place of one; `replace` takes a pipeline instead.

    Stages never change: the graph returned is of new ones, from the replaced stage to the last, and the pipeline to
    go on with is its last stage, `next(iter(graph.values()))[0]`.

    Raises:
        ValueError: The graph hasn't got the stage.
    """
    return traverse_dps(replace(last_of(graph), old_datapipe, new_datapipe))


def datapipe_graph_to_adjlist(datapipe_graph: DataPipeGraph) -> dict[int, tuple[Datapipe, list[int]]]:
    """Return each stage of a graph by its id, with the ids of the stages that it reads from; the last stage first."""
    stages = reversed(traverse(last_of(datapipe_graph)))
    return {id(stage): (stage, [id(source) for source in stage.inputs]) for stage in stages}


@dataclass(frozen=True)
class PipelineGraph:
    """A pipeline to look at: `str()` is text, `mermaid()` and `graphviz()` draw it."""

    datapipe: Datapipe
    debug: bool = False
    """Whether stages are shown with their fields."""

    def label(self, stage: Datapipe) -> str:
        """Return what is shown of a stage."""
        return describe_stage(stage) if self.debug else type(stage).__name__

    def numbered(self) -> dict[int, tuple[str, Datapipe]]:
        """Return each stage by its id with a short name, sources first."""
        return {id(stage): (f"s{place}", stage) for place, stage in enumerate(traverse(self.datapipe))}

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the short names of two stages for each edge, from the source on."""
        stages = self.numbered()
        for name, stage in stages.values():
            for source in stage.inputs:
                yield stages[id(source)][0], name

    def mermaid(self) -> str:
        """Return a Mermaid flowchart, as Markdown viewers draw it."""
        boxes = [f'    {name}["{escape(self.label(stage))}"]' for name, stage in self.numbered().values()]
        arrows = [f"    {source} --> {name}" for source, name in self.edges()]
        return "\n".join(["flowchart TD", *boxes, *arrows])

    def graphviz(self) -> Any:
        """Return a `graphviz.Digraph`.

        Raises:
            ImportError: The Python package graphviz is not installed.
        """
        graphviz = import_optional("graphviz", "drawing a pipeline", "pip install graphviz, or take mermaid()")
        picture = graphviz.Digraph(node_attr={"shape": "box"})
        for name, stage in self.numbered().values():
            picture.node(name, graphviz.escape(self.label(stage)))
        for source, name in self.edges():
            picture.edge(source, name)
        return picture

    def __str__(self) -> str:
        """Return a line a stage: the last first, each indented below the stage that reads from it."""
        return "\n".join(self._lines(self.datapipe, 0))

    def _lines(self, stage: Datapipe, depth: int) -> Iterator[str]:
        yield "  " * depth + self.label(stage)
        for source in stage.inputs:
            yield from self._lines(source, depth + 1)

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid()}\n```"


def escape(text: str) -> str:
    """Return a text as it stands inside of a quoted Mermaid label."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def to_graph(dp: Datapipe, *, debug: bool = False) -> PipelineGraph:
    """Return a pipeline to look at, as text or as a picture; needs no other package, unless for `graphviz()`.

    Args:
        dp: The pipeline.
        debug: Whether to show the stages with their fields.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> print(to_graph(ItemSampler(ItemSet(3, names="seeds"), 1).transform()))
        MiniBatchTransformer
          ItemSampler
    """
    return PipelineGraph(dp, debug)
