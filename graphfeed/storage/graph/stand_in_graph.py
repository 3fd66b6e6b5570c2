"""A graph that stands in for another one."""

from typing import Generic, Protocol, TypeVar

from graphfeed.storage.graph.sampling_graph import SamplingGraph


class HasSize(Protocol):
    """A graph, which may lack the sampling."""

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The number of nodes; by node type if the graph has types."""

    @property
    def num_edges(self) -> int | dict[str, int]:
        """The number of edges; by edge type if the graph has types."""


Graph = TypeVar("Graph", bound=HasSize)


class StandInGraph(SamplingGraph, Generic[Graph]):
    """Samples what another graph has in a way of its own; it is as large as that graph.

    Args:
        graph: The other graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The number of nodes, as the graph has it."""
        return self.graph.num_nodes

    @property
    def num_edges(self) -> int | dict[str, int]:
        """The number of edges, as the graph has it."""
        return self.graph.num_edges
