"""This package's samplers with the interface of PyG's, for the loaders of both."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from graphfeed.datapipes import Datapipe, IterableSource
from graphfeed.ops.arguments import checked
from graphfeed.pyg.data.graph_of_data import graph_of_data
from graphfeed.pyg.data.read_input import NegativeSampling
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.samplers.neighborhoods import Neighborhoods
from graphfeed.pyg.stages.sampler_output import ToSamplerOutput, call_stages, random_links, random_minibatch
from graphfeed.storage.graph import from_type_dict, split_by_type

BaseSampler: Any = import_pyg("torch_geometric.sampler", "graphfeed.pyg.NeighborSampler").BaseSampler


Init = TypeVar("Init", bound=Callable[..., None])


def refuse_former_arguments(init: Init) -> Init:
    """Make an `__init__` recommend `NeighborLoader` if it is called like PyG's former loader `NeighborSampler`."""

    @wraps(init)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        given = args[0] if args else kwargs.get("edge_index")
        if isinstance(given, torch.Tensor) or "sizes" in kwargs:
            raise TypeError(
                "NeighborSampler(edge_index, sizes=...) was a loader of PyG; use NeighborLoader(data, "
                "num_neighbors=...), with edge_index in data, sizes as num_neighbors and node_idx as input_nodes"
            )
        init(self, *args, **kwargs)

    return cast("Init", make)


class StageSampler(BaseSampler):  # type: ignore[misc]
    """A base class for PyG samplers that are stages of a pipeline; subclasses implement `append_to`."""

    node_times: Any = None
    """Times of all nodes, by type if the graph has types, without types that have no times; None if nodes have none."""
    time_attr: str | None = None
    """Name of the times of nodes or edges; None without temporal sampling."""

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Return a pipeline of seeds, extended by the stages that sample."""
        raise NotImplementedError(f"{type(self).__name__} must implement append_to")

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        """Sample around the nodes of a `NodeSamplerInput`, with random draws."""
        del kwargs
        times = index.time
        if times is None and self.time_attr is not None:
            known = self.node_times
            known = known.get(index.input_type) if isinstance(known, Mapping) else known
            if known is None:
                raise ValueError(f"the seeds have no {self.time_attr!r}; give time, a time for each seed")
            times = known[index.node]
        minibatch = random_minibatch({"seeds": index.node, "timestamp": times}, index.input_type)
        # The source is empty: the stages after it are called for this one mini-batch.
        output = call_stages(self.append_to(IterableSource([])), minibatch).output
        output.metadata = (index.input_id, index.time)
        return output

    @property
    def edge_permutation(self) -> None:
        """None: the ids of edges are those of the data."""
        return None


class NeighborSampler(StageSampler):
    """Samples neighbours as `torch_geometric.sampler.NeighborSampler` does, without one of PyG's backends.

    PyG's own `NodeLoader` and `LinkLoader` accept it, too. There, and when it is called directly, torch's default
    generator seeds its draws; in this package's loaders, the mini-batch's key does. Edge ids are those of the data.

    Args:
        num_neighbors: As for `NeighborLoader`, the seeds' own hop first; so are `data` and the other arguments
            about sampling. Stages of a pipeline begin with the outermost hop instead (`graphfeed.NeighborSampler`).
        share_memory: Has no effect: a graph moves to shared memory when processes need it.
        sample_direction: "forward" samples the sources of edges to a node, "backward" the destinations of its edges.

    Raises:
        ValueError: Arguments do not fit the data or each other.
    """

    @refuse_former_arguments
    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: Any = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
    ) -> None:
        del is_sorted, share_memory
        if sample_direction not in ("forward", "backward"):
            raise ValueError(f"sample_direction must be 'forward' or 'backward', but is {sample_direction!r}")
        found = graph_of_data(data, time_attr, weight_attr, reverse=sample_direction == "backward")
        self.neighborhoods = Neighborhoods(
            found.graph, num_neighbors, replace, subgraph_type if directed else "induced", disjoint,
            temporal_strategy, found.node_time, found.edge_time, found.weight, sample_direction == "backward",
        )  # fmt: skip
        self.graph, self.untimed = found.graph, found.untimed
        self.append_to(IterableSource([]))  # so that invalid arguments raise now

    @property
    def time_attr(self) -> str | None:  # type: ignore[override]
        """Name of the times of nodes or edges."""
        return self.neighborhoods.node_time or self.neighborhoods.edge_time

    @property
    def num_neighbors(self) -> Any:
        """The numbers of neighbours as given."""
        return self.neighborhoods.num_neighbors

    @property
    def node_times(self) -> Any:
        """Times of all nodes, by type if the graph has types."""
        name, graph = self.neighborhoods.node_time, self.graph
        if name is None:
            return None
        by_type = split_by_type(graph.node_attribute(name), graph.num_nodes)
        # The graph also has filler times for types without any, which are not times of seeds.
        return from_type_dict({node_type: own for node_type, own in by_type.items() if node_type not in self.untimed})

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Return a pipeline of seeds, extended by the stages that sample."""
        return self.neighborhoods.append_to(pipe, report_time)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Sample around the edges of an `EdgeSamplerInput`, with random draws."""
        stages = self.neighborhoods.append_links_to(IterableSource([]), NegativeSampling.cast(neg_sampling))
        return call_stages(stages, random_links(index)).output


class HGTSampler(StageSampler):
    """Samples as `torch_geometric.sampler.HGTSampler` does, without torch-sparse.

    PyG's own `NodeLoader` accepts it, too. There, and when it is called directly, torch's default generator seeds its
    draws; in this package's loaders, the mini-batch's key does. `is_sorted` and `share_memory` have no effect.

    Args:
        data: A `torch_geometric.data.HeteroData`.
        num_samples: Number of nodes per hop, the seeds' own hop first: for all node types, or by node type.

    Raises:
        ValueError: `data` has no types, a node type has no numbers, or a number is negative.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        is_sorted: bool = False,
        share_memory: bool = False,
    ) -> None:
        del is_sorted, share_memory
        self.graph = graph_of_data(data).graph
        self.num_samples = num_samples
        self.append_to(IterableSource([]))  # so that invalid arguments raise now

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Return a pipeline of seeds, extended by the stages that sample."""
        pipe = pipe.sample_by_budget(self.graph, self.num_samples)
        return ToSamplerOutput(pipe, report_time=report_time, subgraph_type="induced")

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Raise a NotImplementedError, as PyG's sampler does."""
        raise NotImplementedError("HGTSampler only samples around nodes; sample around edges with NeighborSampler")
