"""Conversion of the sampling arguments of PyG's loaders to stages of a pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from graphfeed.datapipes import Datapipe
from graphfeed.ops.arguments import brief, is_list
from graphfeed.pyg.data.graph_of_data import reverse_type
from graphfeed.pyg.data.read_input import NegativeSampling
from graphfeed.pyg.data.store_data import EdgeType
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.sampler_output import JoinedNeighborSampler, JoinedTemporalSampler, ToSamplerOutput
from graphfeed.pyg.stages.seed_links import LinkSeeds
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import etype_str_to_tuple, type_name

SubgraphType: TypeAlias = Literal["directional", "bidirectional", "induced"]
SUBGRAPH_TYPES = ("directional", "bidirectional", "induced")
STRATEGIES: dict[str, Literal["uniform", "latest"]] = {"uniform": "uniform", "last": "latest"}
"""This package's name for each of PyG's temporal strategies."""


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """The neighbourhoods to sample, in PyG's terms; `append_to` adds the stages for it to a pipeline."""

    graph: SamplingGraph
    num_neighbors: Any
    """One number per hop, the seeds' own hop first, a dict of such lists by edge type, or a `NumNeighbors`. -1
    selects all neighbours, 0 none. With types, a number applies to each edge type. Without numbers, only the seeds."""
    replace: bool = False
    """Whether an edge may be drawn more than once."""
    subgraph_type: SubgraphType = "directional"
    """Which edges to return: the sampled ones; these and their reverse; or all between the nodes."""
    disjoint: bool = False
    """Whether each seed has its own tree. Implied by temporal sampling."""
    temporal_strategy: str = "uniform"
    """"uniform" or "last", which samples the most recent neighbours."""
    node_time: str | None = None
    """Node attribute of the graph with times; nodes later than the seed are not sampled."""
    edge_time: str | None = None
    """Edge attribute of the graph with times; edges later than the seed are not sampled."""
    weight: str | None = None
    """Edge attribute of the graph with weights."""
    backward: bool = False
    """Whether the graph has the reversed edges of the data, so that successors are sampled."""

    def __post_init__(self) -> None:
        name = getattr(self.subgraph_type, "value", self.subgraph_type)  # PyG's is an enumeration
        if not isinstance(name, str) or name not in SUBGRAPH_TYPES:
            raise ValueError(f"subgraph_type must be one of {SUBGRAPH_TYPES}, but is {brief(self.subgraph_type)}")
        object.__setattr__(self, "subgraph_type", name)
        if self.temporal_strategy not in STRATEGIES:
            raise ValueError(
                f"temporal_strategy must be one of {tuple(STRATEGIES)}, but is {brief(self.temporal_strategy)}"
            )
        if name == "induced" and self.is_disjoint:
            raise ValueError(
                "subgraph_type='induced' has one node for all seeds that lead to it, so it can't be combined with "
                "disjoint=True or time_attr; leave one of them out"
            )

    @property
    def in_time(self) -> bool:
        """Whether nodes or edges have times."""
        return self.node_time is not None or self.edge_time is not None

    @property
    def is_disjoint(self) -> bool:
        """Whether each seed has its own tree."""
        return self.disjoint or self.in_time

    @property
    def fanouts(self) -> Any:
        """Fan-outs in the form that a sampler expects: outermost hop first, by edge type; a 0 if there are no hops."""
        edge_types = [self.name_in_data(edge_type) for edge_type in self.graph.edge_types]
        given = self.as_num_neighbors
        if not edge_types and isinstance(given.values, Mapping):
            raise ValueError("num_neighbors is a dict by edge type, but data has no types; give one number per hop")
        # PyG begins with the seeds' hop, a graph with the outermost one. No hops become one hop without neighbours.
        numbers = given.get_values([etype_str_to_tuple(edge_type) for edge_type in edge_types] if edge_types else None)
        if isinstance(numbers, Mapping):
            return {self.name_in_data(type_name(of)): list(own)[::-1] or [0] for of, own in numbers.items()}
        return list(numbers)[::-1] or [0]

    @property
    def as_num_neighbors(self) -> Any:
        """The numbers as PyG's `NumNeighbors`."""
        kind, given = import_pyg("torch_geometric.sampler", "num_neighbors").NumNeighbors, self.num_neighbors
        if not isinstance(given, (kind, Mapping)) and not is_list(given):
            raise TypeError(f"num_neighbors must be a list with one number per hop, or a dict, but is {brief(given)}")
        try:
            return given if isinstance(given, kind) else kind(given if isinstance(given, Mapping) else list(given))
        except ValueError as error:
            raise ValueError(f"num_neighbors: {error}") from error

    def name_in_data(self, edge_type: str) -> str:
        """Return the data's name of an edge type of the graph, or the other way around."""
        name: str = reverse_type(edge_type) if self.backward else edge_type
        return name

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Append the stages that sample to a pipeline of seeds; the result yields `SampledMiniBatch`.

        Args:
            pipe: Yields mini-batches whose seeds are nodes, with `timestamp` for temporal sampling.
            report_time: Whether the data get the times of the seeds.
        """
        options = (self.graph, self.fanouts, self.replace, self.weight)
        if self.in_time:
            # As in PyG, neighbours with the same time as the seed are included.
            pipe = JoinedTemporalSampler(
                pipe, *options, node_timestamp_attr_name=self.node_time, edge_timestamp_attr_name=self.edge_time,
                strategy=STRATEGIES[self.temporal_strategy], inclusive=True, disjoint=True,
            )  # fmt: skip
        else:
            pipe = JoinedNeighborSampler(pipe, *options, only_new=True, disjoint=self.disjoint)
        if self.subgraph_type == "induced":
            pipe = pipe.induce_subgraph(self.graph)
        has_hops = self.as_num_neighbors.num_hops > 0
        return ToSamplerOutput(pipe, self.is_disjoint, report_time, self.subgraph_type, self.backward, has_hops)

    def append_links_to(
        self, pipe: Datapipe, negatives: NegativeSampling | None, edge_types: tuple[EdgeType | None, ...] = ()
    ) -> Datapipe:
        """Append the stages that draw negatives and sample to a pipeline of edges.

        Args:
            pipe: Yields mini-batches whose seeds are edges.
            negatives: How to draw negatives; None: no negatives.
            edge_types: Edge types of the seeds; by default, those of each mini-batch.
        """
        if negatives is not None:
            self.check_negatives(negatives)
            query = negatives.query(self.node_time)
            pipe = pipe.sample_negative_pairs(self.graph, negatives.mode, negatives.amount, query)
        triplets = int(negatives.amount) if negatives is not None and negatives.is_triplet() else 0
        return self.append_to(LinkSeeds(pipe, self.is_disjoint, triplets, edge_types))

    def check_negatives(self, negatives: NegativeSampling) -> None:
        """Raise if the negatives depend on the direction of the edges, and the graph has reversed edges."""
        if not self.backward:
            return
        advice = 'sample_direction="backward"; use "forward"'
        if negatives.strict:
            raise ValueError(f"neg_sampling with strict=True can't be combined with {advice}, or strict=False")
        if any(self.name_in_data(edge_type) != edge_type for edge_type in self.graph.edge_types):
            raise ValueError(f"neg_sampling in a graph with several node types can't be combined with {advice}")
