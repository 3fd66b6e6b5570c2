"""PyG's `GraphSAINT` samplers: random nodes with all edges among them, and norms from their sampling frequencies."""

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.datapipes import Datapipe, ItemSampler, MiniBatch, Transform
from graphfeed.loader import DataLoader
from graphfeed.ops import draw_key, drawing
from graphfeed.ops.arguments import NOTHING, check_count, checked
from graphfeed.ops.process import progress_bar
from graphfeed.ops.sampling import cumulate_weights, draw_places
from graphfeed.pyg.data.features_of_data import DataFeatures, features_of_data
from graphfeed.pyg.data.graph_of_data import graph_of_data
from graphfeed.pyg.data.tables import check_data, import_pyg
from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions
from graphfeed.pyg.stages.sampler_output import ToSamplerOutput, relation_of
from graphfeed.storage import FusedCSCSamplingGraph, ItemSet, fused_csc_sampling_graph
from graphfeed.storage.graph import first_ids, to_type_dict
from graphfeed.storage.memory import read_tensors, write_tensors


class DrawEdgeEnds(Transform, draws=True, reads_graph=True, seeded=False):
    """Draws edges with replacement, and sets the input nodes of a mini-batch to their endpoints, sorted by id.

    The seeds of the mini-batch are removed. The graph must not have types (see `whole_of`).
    """

    graph: FusedCSCSamplingGraph
    count: int
    """Number of edges to draw."""
    sums: str | None = None
    """Edge attribute with the running sums of the edges' weights; None: edges are drawn uniformly, and the input nodes
    are only their destinations."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        sums = NOTHING if self.sums is None else self.graph.edge_attributes[self.sums]
        with drawing(minibatch.key, self.number):
            edges = draw_places(self.count, draw_key(0), self.graph.total_num_edges, sums).numpy()
        # The column of an edge is one of its endpoints.
        ends = np.searchsorted(self.graph.csc_indptr.numpy(), edges, side="right") - 1
        if self.sums is not None:
            ends = np.concatenate([ends, self.graph.indices.numpy()[edges]])
        return with_seed_nodes(minibatch, torch.from_numpy(ends).to(self.graph.indices.dtype))


class SplitByType(Transform, seeded=False):
    """Replaces the input nodes, which are ids in a whole graph, by ids in their types."""

    graph: FusedCSCSamplingGraph

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result, nodes, sizes = copy.copy(minibatch), minibatch.input_nodes, self.graph.num_nodes
        assert isinstance(nodes, torch.Tensor)
        assert isinstance(sizes, dict)
        bounds = np.searchsorted(nodes.numpy(), np.cumsum([0, *sizes.values()])).tolist()
        firsts = first_ids(sizes)
        result.input_nodes = {
            name: nodes[low:high] - firsts[name] for name, (low, high) in zip(sizes, pairwise(bounds), strict=True)
        }
        return result


def with_seed_nodes(minibatch: MiniBatch, nodes: torch.Tensor) -> MiniBatch:
    result = copy.copy(minibatch)
    result.seeds, result.input_nodes = None, torch.from_numpy(np.unique(nodes.numpy()))
    return result


class DrawWalks(Transform, draws=True, reads_graph=True, seeded=False):
    """Walks from random nodes, and sets the input nodes of a mini-batch to the visited nodes, sorted by id.

    A step goes from the destination of an edge to its source. Seeds are removed. The graph must not have types.
    """

    graph: FusedCSCSamplingGraph
    count: int
    """Number of walks."""
    num_steps: int
    """Number of steps per walk."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        with drawing(minibatch.key, self.number):
            starts = draw_places(self.count, draw_key(0), self.graph.total_num_nodes)
            walks = self.graph.random_walks(starts, self.num_steps, key=draw_key(1))
        return with_seed_nodes(minibatch, walks.to(self.graph.indices.dtype))


COUNTED = 0x434F554E54
"""Random seed of the mini-batches for the norms. It is constant, so that an epoch that another loader began continues
with the same norms."""
RARE = 0.1
"""Stands for a count of 0, and for the norm of an edge if neither the edge nor its source was sampled."""
HIGHEST = 1e4
"""Upper bound of the norm of an edge."""
SUMS = "running sums"
"""Edge attribute of the graph with the running sums of weights."""
Norms = tuple[torch.Tensor, torch.Tensor]


class GraphSAINTSampler(PyGLoader):
    """Yields mini-batches of random nodes and all edges among them, as `torch_geometric.loader.GraphSAINTSampler` does.

    Subclasses implement `draw_nodes`. Nodes are sorted by id, edges by source. A mini-batch also has `n_id` and `e_id`.
    With `sample_coverage`, it has `node_norm` and `edge_norm`, which are inversely related to how often its nodes and
    edges are sampled. They are weights for the loss and the aggregation (Zeng et al.: GraphSAINT, ICLR 2020). The
    constructor computes them from separate mini-batches, which do not depend on the random seed.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData` without `node_norm` and `edge_norm`. Nodes, edges and steps
            of all types are drawn alike.
        batch_size: Number of nodes, edges or walks to draw for a mini-batch.
        num_steps: Number of mini-batches per epoch.
        sample_coverage: Number of nodes to sample for the norms, as a multiple of the number of nodes; 0: no norms.
        save_dir: Folder where the norms are saved, to be read by the next loader.
        log: Whether a progress bar is shown in a terminal while the norms are computed.
        kwargs: As for `NodeLoader`.

    Raises:
        ValueError: `data` has norms, no nodes, or no edges to draw; a number is out of range; or the file with
            the norms is damaged or belongs to another graph.
    """

    is_subgraph = True

    @checked
    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        check_data(data)
        import_pyg("torch_geometric.data", name)
        for norm in ("node_norm", "edge_norm"):
            if norm in data:
                raise ValueError(f"data has {norm!r}, which is an attribute of the mini-batches; rename it")
        check_count("batch_size", batch_size, 1)
        check_count("num_steps", num_steps, 1)
        check_count("sample_coverage", sample_coverage, 0)
        self.data, self.num_steps, self.sample_coverage = data, num_steps, sample_coverage
        self.node_norm: torch.Tensor | None = None
        self.edge_norm: torch.Tensor | None = None
        self.save_dir, self.log = save_dir, log
        # The columns of this graph are the sources, so that a walk follows the edges.
        self.graph = graph_of_data(data, reverse=True).graph
        self.whole = whole_of(self.graph)
        if not self.graph.total_num_nodes:
            raise ValueError("data has no nodes to draw from")
        options = TorchOptions.of(kwargs, name)
        if sample_coverage:
            self.node_norm, self.edge_norm = self.read_norms(
                lambda: self.count_norms(batch_size, {**options.loader(), "seed": COUNTED, "observer": None})
            )
        pipe = self.append_to(options.source(ItemSet(num_steps, names="seeds")), batch_size)
        super().__init__(self._fill(pipe, self._read_features()), options, data)

    def _read_features(self) -> DataFeatures:
        given = copy.copy(self.data)
        for name, size in to_type_dict(self.graph.num_nodes).items():
            (given if name is None else given[name]).num_nodes = size
        if self.node_norm is not None and self.edge_norm is not None:
            for attribute, norms, table in (
                ("node_norm", self.node_norm, self.nodes_of),
                ("edge_norm", self.edge_norm, self.edges_of),
            ):
                for name, own in table.items():
                    setattr(given if name is None else given[name], attribute, norms[own])
        return features_of_data(given)

    @cached_property
    def nodes_of(self) -> dict[Any, slice]:
        """The nodes of each type among all nodes."""
        return slices_of(to_type_dict(self.graph.num_nodes))

    @cached_property
    def edges_of(self) -> dict[Any, slice]:
        """The edges of each type of the data among all edges."""
        sizes = to_type_dict(self.graph.num_edges)
        return slices_of({name and relation_of(name, backward=True): size for name, size in sizes.items()})

    def draw_nodes(self, pipe: Datapipe, graph: FusedCSCSamplingGraph, count: int) -> Datapipe:
        """Return the pipeline, extended by a stage that sets the input nodes, the only nodes that later stages use.

        Args:
            pipe: Yields mini-batches of which only the key is meaningful.
            graph: The graph without types, whose columns are the sources of the edges.
            count: The argument `batch_size`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement draw_nodes")

    def append_to(self, pipe: Datapipe, count: int) -> Datapipe:
        """Append the stages that draw nodes and find the edges among them."""
        pipe = self.draw_nodes(pipe, self.whole, count)
        pipe = SplitByType(pipe, self.graph) if self.whole is not self.graph else pipe
        pipe = pipe.induce_subgraph(self.graph)
        return ToSamplerOutput(pipe, subgraph_type="induced", backward=True)

    @property
    def file_name(self) -> str:
        """Name of the file with the norms, the same as PyG's."""
        return f"{type(self).__name__.lower()}_{self.sample_coverage}.pt"

    def read_norms(self, count: Callable[[], Norms]) -> Norms:
        """Read the norms of nodes and edges from the file; if there is none, compute and save them."""
        if self.save_dir is None:
            return count()
        path = Path(self.save_dir) / self.file_name
        if not path.exists():
            norms = count()
            write_tensors(path, norms)
            return norms
        read = read_tensors(path)
        sizes = (self.graph.total_num_nodes, self.graph.total_num_edges)
        shapes = [getattr(part, "shape", None) for part in read] if isinstance(read, (tuple, list)) else None
        if shapes != [(size,) for size in sizes]:
            raise ValueError(
                f"{path} must have the norms of {sizes[0]} nodes and {sizes[1]} edges, but is of another graph; remove "
                "it or give another save_dir"
            )
        return read[0], read[1]

    def count_norms(self, count: int, arguments: dict[str, Any]) -> Norms:
        """Compute the norms of nodes and edges from whole epochs, until enough nodes were sampled.

        The norm of a node is 1 / number of nodes, divided by the fraction of mini-batches with this node. The norm of
        an edge is the count of its source, divided by its own count, and `HIGHEST` if only its source was sampled.
        """
        num_nodes, num_edges = self.graph.total_num_nodes, self.graph.total_num_edges
        of_nodes, of_edges = np.zeros(num_nodes, np.int64), np.zeros(num_edges, np.int64)
        pipe = self.append_to(ItemSampler(ItemSet(self.num_steps, names="seeds"), 1), count)
        goal, epochs, found = num_nodes * self.sample_coverage, 0, 0
        bar = progress_bar("counting nodes and edges", goal, "node", wanted=self.log)
        with bar, DataLoader(pipe, **arguments) as loader:
            while found < goal:
                minibatch: Any
                for minibatch in loader:
                    sampled = ids_of_each(self.nodes_of, minibatch.output.node)
                    of_nodes[sampled] += 1
                    of_edges[ids_of_each(self.edges_of, minibatch.output.edge)] += 1
                    found += len(sampled)
                    bar.update(len(sampled))
                epochs += 1
        parts = [np.empty(0, np.int64)]
        for name in self.edges_of:
            ends = (self.data if name is None else self.data[name]).edge_index
            parts.append(ends[0].cpu().numpy() + self.nodes_of[name and name[0]].start)
        sources = np.concatenate(parts)
        # For an edge that was never sampled although its source was, this denominator gives the highest norm.
        rates = of_nodes[sources] / np.maximum(of_edges, 1 / HIGHEST)
        edge_norm = np.where(of_nodes[sources] > 0, np.minimum(rates, HIGHEST), RARE).astype(np.float32)
        node_norm = epochs * self.num_steps / np.where(of_nodes > 0, of_nodes, RARE) / num_nodes
        return torch.from_numpy(node_norm.astype(np.float32)), torch.from_numpy(edge_norm)


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Draws nodes in proportion to their out-degree, as `torch_geometric.loader.GraphSAINTNodeSampler` does.

    `batch_size` nodes are drawn with replacement. The arguments are those of `GraphSAINTSampler`.
    """

    def draw_nodes(self, pipe: Datapipe, graph: FusedCSCSamplingGraph, count: int) -> Datapipe:
        """Append a stage that draws nodes."""
        check_has_edges(graph, self)
        return DrawEdgeEnds(pipe, graph, count)


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Draws edges and uses both endpoints, as `torch_geometric.loader.GraphSAINTEdgeSampler` is meant to.

    An edge is drawn in proportion to `1 / out-degree of its source + 1 / in-degree of its destination`, as in the
    paper; PyG's sampler uses the degrees themselves. `batch_size` edges are drawn with replacement. The arguments are
    those of `GraphSAINTSampler`.
    """

    def draw_nodes(self, pipe: Datapipe, graph: FusedCSCSamplingGraph, count: int) -> Datapipe:
        """Append a stage that draws edges."""
        check_has_edges(graph, self)
        # The pipeline that computes the norms may have added the sums already.
        if SUMS not in graph.edge_attributes:
            # The weight of an edge is 1 / out-degree of its source + 1 / in-degree of its destination.
            leading = graph.csc_indptr.diff()
            weights = torch.repeat_interleave(1 / leading.double(), leading)
            weights += (1 / torch.bincount(graph.indices, minlength=graph.total_num_nodes).double())[graph.indices]
            whole = torch.tensor([0, graph.total_num_edges], device="cpu")
            graph.add_edge_attribute(SUMS, cumulate_weights(whole, weights))
        return DrawEdgeEnds(pipe, graph, count, SUMS)


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Visits nodes by random walks along the edges, as `torch_geometric.loader.GraphSAINTRandomWalkSampler` does.

    A walk begins at any node, and stays at a node without outgoing edges.

    Args:
        data: See `GraphSAINTSampler`, as for all further arguments.
        batch_size: Number of walks per mini-batch.
        walk_length: Number of steps per walk.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | None = None,
        log: bool = True,
        **kwargs: Any,
    ) -> None:
        check_count("walk_length", walk_length, 0)
        self.walk_length = walk_length
        super().__init__(data, batch_size, num_steps, sample_coverage, save_dir, log, **kwargs)

    def draw_nodes(self, pipe: Datapipe, graph: FusedCSCSamplingGraph, count: int) -> Datapipe:
        """Append a stage that walks."""
        return DrawWalks(pipe, graph, count, self.walk_length)

    @property
    def file_name(self) -> str:
        """Name of the file with the norms, the same as PyG's."""
        return f"{type(self).__name__.lower()}_{self.walk_length}_{self.sample_coverage}.pt"


def whole_of(graph: FusedCSCSamplingGraph) -> FusedCSCSamplingGraph:
    """Return a graph with types as one without, in the same memory; any other graph is returned itself."""
    if not isinstance(graph.num_nodes, dict):
        return graph
    return fused_csc_sampling_graph(graph.csc_indptr, graph.indices)


def slices_of(sizes: Mapping[Any, int]) -> dict[Any, slice]:
    """Return the place of each part in an array of all parts."""
    bounds = accumulate(sizes.values(), initial=0)
    return {name: slice(*own) for name, own in zip(sizes, pairwise(bounds), strict=True)}


def ids_of_each(places: Mapping[Any, slice], ids: Any) -> NDArray[np.int64]:
    """Return the ids of all types as ids in an array of all types."""
    parts = [own.numpy() + places[name].start for name, own in to_type_dict(ids).items() if own is not None]
    return np.concatenate([*parts, np.empty(0, np.int64)])


def check_has_edges(graph: FusedCSCSamplingGraph, loader: GraphSAINTSampler) -> None:
    if not graph.total_num_edges:
        raise ValueError(f"data has no edges, which {type(loader).__name__} draws from")
