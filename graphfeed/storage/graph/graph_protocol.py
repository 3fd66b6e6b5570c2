"""Interface of a graph: its size, and one hop of sampling. `SamplingGraph` implements everything else with it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph


class GraphProtocol(ABC):
    """The size of a graph, and the sampling of one hop.

    Node ids are those of the graph. Without types, `ByType` is a tensor; with types, a dict by node type. Draws should
    depend only on the key and the node, as in `draw(key, node, number)`, so that mini-batches are the same for any
    number of workers. A graph is sent to worker processes with `pickle`.
    """

    @property
    @abstractmethod
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes; by node type, in the order of their ids, if the graph has types."""

    @property
    @abstractmethod
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges; by edge type "source:relation:destination", in the order of fan-outs, if it has types."""

    @abstractmethod
    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample one hop: in-edges of the seeds, with the graph's ids and no row ids. A fan-out of -1 takes all."""

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample one hop of in-edges by random variates of the neighbours (LABOR). Optional."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sample_layer_neighbors; write it, or sample with sample_neighbor instead"
        )
