"""The stages of a pipeline as a string and as a picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.description import describe_stage
from graphfeed.datapipes.pipeline.traverse import traverse
from graphfeed.ops.arguments import check_flags, kind_of
from graphfeed.ops.process import import_optional


@dataclass(frozen=True)
class PipelineGraph:
    """A view of a pipeline: `str()` lists its stages; `mermaid()` and `graphviz()` draw them."""

    datapipe: Datapipe
    debug: bool = False
    """Whether stages are shown with their fields."""

    def label(self, stage: Datapipe) -> str:
        """Return the label of a stage."""
        return describe_stage(stage) if self.debug else type(stage).__name__

    def numbered(self) -> dict[int, tuple[str, Datapipe]]:
        """Return a short name and the stage by the id of the stage, sources first."""
        return {id(stage): (f"s{number}", stage) for number, stage in enumerate(traverse(self.datapipe))}

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield the short names of the two stages of each edge, the source first."""
        stages = self.numbered()
        for name, stage in stages.values():
            for source in stage.inputs:
                yield stages[id(source)][0], name

    def mermaid(self) -> str:
        """Return a Mermaid flowchart, which many Markdown viewers draw."""
        boxes = [f'    {name}["{escape(self.label(stage))}"]' for name, stage in self.numbered().values()]
        arrows = [f"    {source} --> {name}" for source, name in self.edges()]
        return "\n".join(["flowchart TD", *boxes, *arrows])

    def graphviz(self) -> Any:
        """Return a `graphviz.Digraph`.

        Raises:
            ImportError: The Python package graphviz is not installed.
        """
        graphviz = import_optional("graphviz", "drawing a pipeline", "pip install graphviz, or use mermaid()")
        picture = graphviz.Digraph(node_attr={"shape": "box"})
        for name, stage in self.numbered().values():
            picture.node(name, graphviz.escape(self.label(stage)))
        for source, name in self.edges():
            picture.edge(source, name)
        return picture

    def __str__(self) -> str:
        """Return one line per stage, last stage first, each indented below the stage that reads from it."""
        return "\n".join(self._lines(self.datapipe, 0))

    def _lines(self, stage: Datapipe, depth: int) -> Iterator[str]:
        yield "  " * depth + self.label(stage)
        for source in stage.inputs:
            yield from self._lines(source, depth + 1)

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid()}\n```"


def escape(text: str) -> str:
    # These characters are not allowed in a quoted label of a Mermaid graph.
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def to_graph(dp: Datapipe, *, debug: bool = False) -> PipelineGraph:
    """Return a view of a pipeline, to print or to draw.

    Args:
        debug: Whether to show the stages with their fields.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> print(to_graph(ItemSampler(ItemSet(3, names="seeds"), 1).transform()))
        MiniBatchTransformer
          ItemSampler
    """
    if not isinstance(dp, Datapipe):
        raise TypeError(f"dp must be a pipeline of stages, but is {kind_of(dp)}; give it the last stage")
    check_flags(debug=debug)
    return PipelineGraph(dp, debug)
