"""How PyG's loaders sample: their arguments as stages of a pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from graphfeed.datapipes import Datapipe
from graphfeed.ops.arguments import brief, is_list
from graphfeed.pyg.data.data_graph import reverse_type
from graphfeed.pyg.data.inputs import NegativeSampling
from graphfeed.pyg.data.store_data import EdgeType
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.sampler_output import JoinedNeighborSampler, JoinedTemporalSampler, ToSamplerOutput
from graphfeed.pyg.stages.seed_links import LinkSeeds
from graphfeed.storage import SamplingGraph
from graphfeed.storage.graph import etype_str_to_tuple, type_name

SubgraphType: TypeAlias = Literal["directional", "bidirectional", "induced"]
SUBGRAPH_TYPES = ("directional", "bidirectional", "induced")
STRATEGIES: dict[str, Literal["uniform", "latest"]] = {"uniform": "uniform", "last": "latest"}
"""PyG's name of each way to choose among the neighbours that exist, and this package's."""


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """What is sampled around seeds, in PyG's terms; `append_to` adds the stages that do it to a pipeline."""

    graph: SamplingGraph
    num_neighbors: Any
    """One number per hop, the seeds' own hop first, or a dict of such lists by edge type, or a `NumNeighbors`. -1 takes
    all neighbours, 0 none. With types, a number holds for each edge type. Without numbers, the seeds are alone."""
    replace: bool = False
    """Whether an edge may be chosen more than once."""
    subgraph_type: SubgraphType = "directional"
    """Which edges between the nodes: those that were sampled; these and their reverse; or all of them."""
    disjoint: bool = False
    """Whether each seed has nodes of its own. Always so in time."""
    temporal_strategy: str = "uniform"
    """"uniform" or "last", which takes the most recent neighbours."""
    node_time: str | None = None
    """The node attribute of the graph with times; what is later than the seed is not there."""
    edge_time: str | None = None
    """The edge attribute of the graph with times."""
    weight: str | None = None
    """The edge attribute of the graph with weights."""
    backward: bool = False
    """Whether the graph's edges are those of the data the other way around, so that successors are sampled."""

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
                "subgraph_type='induced' has one node for all seeds that lead to it, so neither disjoint=True nor "
                "time_attr goes with it; leave one of them out"
            )

    @property
    def in_time(self) -> bool:
        """Whether nodes or edges have times."""
        return self.node_time is not None or self.edge_time is not None

    @property
    def is_disjoint(self) -> bool:
        """Whether each seed has nodes of its own."""
        return self.disjoint or self.in_time

    @property
    def fanouts(self) -> Any:
        """The numbers as a sampler takes them: the outermost hop first, and for each edge type; one of 0 if none."""
        edge_types = [self.name_in_data(edge_type) for edge_type in self.graph.edge_types]
        given = self.given
        if not edge_types and isinstance(given.values, Mapping):
            raise ValueError("num_neighbors is a dict by edge type, but data has no types; give one number per hop")
        # PyG counts hops from the seeds on, a graph from the outermost one. No hop at all is one without neighbours.
        numbers = given.get_values([etype_str_to_tuple(edge_type) for edge_type in edge_types] if edge_types else None)
        if isinstance(numbers, Mapping):
            return {self.name_in_data(type_name(of)): list(own)[::-1] or [0] for of, own in numbers.items()}
        return list(numbers)[::-1] or [0]

    @property
    def given(self) -> Any:
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
        """Return a pipeline of seeds with the stages behind it that sample; it gives `SampledMiniBatch`.

        Args:
            pipe: Gives mini-batches whose seeds are nodes, with `timestamp` if there are times.
            report_time: Whether the data hold the seeds' times.
        """
        options = (self.graph, self.fanouts, self.replace, self.weight)
        if self.in_time:
            # In PyG, what is of the seed's own time is there as well.
            pipe = JoinedTemporalSampler(
                pipe, *options, node_timestamp_attr_name=self.node_time, edge_timestamp_attr_name=self.edge_time,
                strategy=STRATEGIES[self.temporal_strategy], inclusive=True, disjoint=True,
            )  # fmt: skip
        else:
            pipe = JoinedNeighborSampler(pipe, *options, only_new=True, disjoint=self.disjoint)
        if self.subgraph_type == "induced":
            pipe = pipe.induce_subgraph(self.graph)
        has_hops = self.given.num_hops > 0
        return ToSamplerOutput(pipe, self.is_disjoint, report_time, self.subgraph_type, self.backward, has_hops)

    def append_links_to(
        self, pipe: Datapipe, negatives: NegativeSampling | None, edge_types: tuple[EdgeType | None, ...] = ()
    ) -> Datapipe:
        """Return a pipeline of edges with the stages behind it that draw negatives and sample.

        Args:
            pipe: Gives mini-batches whose seeds are edges.
            negatives: Which negatives are drawn; None: none.
            edge_types: The types of the seeds. By default, those that each mini-batch has.
        """
        if negatives is not None:
            self.check_negatives(negatives)
            query = negatives.query(self.node_time)
            pipe = pipe.sample_negative_pairs(self.graph, negatives.mode, negatives.amount, query)
        triplets = int(negatives.amount) if negatives is not None and negatives.is_triplet() else 0
        return self.append_to(LinkSeeds(pipe, self.is_disjoint, triplets, edge_types))

    def check_negatives(self, negatives: NegativeSampling) -> None:
        """Raise if negatives depend on the direction of edges, and the graph has them the other way around."""
        if not self.backward:
            return
        advice = 'sample_direction="backward"; use "forward"'
        if negatives.strict:
            raise ValueError(f"neg_sampling with strict=True does not go with {advice}, or strict=False")
        if any(self.name_in_data(edge_type) != edge_type for edge_type in self.graph.edge_types):
            raise ValueError(f"neg_sampling in a graph with several node types does not go with {advice}")
