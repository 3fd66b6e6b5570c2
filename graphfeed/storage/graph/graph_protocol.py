"""What a graph offers: its size, and one hop of sampling. `SamplingGraph` makes of it all that samplers ask for."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph


class GraphProtocol(ABC):
    """The size of a graph, and one hop around some nodes.

    Node ids are those of the graph. Without types, `ByType` is a tensor; with types, a dict by node type. What is drawn
    should depend on the key and the node alone, as in `draw(key, node, number)`, so that mini-batches stay the same for
    any number of workers. How it reaches worker processes, a graph says by the usual means of `pickle`.
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
        """Sample in-edges of the seeds, all by a fan-out of -1: one hop, with the ids of the graph and no row ids."""

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
        """Sample in-edges of the seeds by variates of the neighbours (LABOR): one hop. A graph may lack this."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sample_layer_neighbors; write it, or sample with sample_neighbor instead"
        )
