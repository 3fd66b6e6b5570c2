"""Arrange temporal neighbours as matrices, one row per seed."""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.traverse import find
from graphfeed.datapipes.samplers.subgraph_sampler import with_nodes
from graphfeed.datapipes.samplers.temporal_neighbor_sampler import TemporalNeighborSampler
from graphfeed.datapipes.samplers.temporal_sampler import TemporalSampler
from graphfeed.datapipes.transform import Transform
from graphfeed.ops.arguments import brief, kind_of
from graphfeed.ops.sampling import as_times
from graphfeed.storage import Feature, FusedCSCSamplingGraph, SampledSubgraph, TorchBasedFeature
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, has_latest
from graphfeed.storage.memory import Movable, shapes_repr


@dataclass(repr=False, eq=False)
class NeighborMatrix(Movable):
    """The neighbours of one hop: a row per seed of the hop, and k places in it, of which some may be padded.

    Attributes:
        seeds: Ids, shape (n,). The seeds of the next hop are the neighbours of this one, n * k of them; -1 where
            padded.
        seed_times: The time of each seed, and of the edge that led to it in later hops, int64.
        ids: Ids of the neighbours, shape (n, k); -1 where padded.
        times: Times of the edges, int64, shape (n, k); 0 where padded.
        edges: Ids of the edges, shape (n, k); -1 where padded.
        mask: Whether a place has a neighbour, bool, shape (n, k).
        node_features: Features of the neighbours by name, shape (n, k, ...); 0 where padded.
        edge_features: Features of the edges by name, likewise.
    """

    seeds: torch.Tensor
    seed_times: torch.Tensor
    ids: torch.Tensor
    times: torch.Tensor
    edges: torch.Tensor
    mask: torch.Tensor
    node_features: dict[str, torch.Tensor]
    edge_features: dict[str, torch.Tensor]

    def __repr__(self) -> str:
        return shapes_repr(type(self).__name__, vars(self))


class ToMatrix(Transform, name="to_matrix", keeps_size=True, seeded=False):
    """Arranges the neighbours of a temporal sampler as matrices, in the form that models of events expect.

    Sets `minibatch.matrices`, the hop of the seeds first: the neighbours of each seed from the oldest to the newest.
    The seeds of the first hop are nodes, or the endpoints of edges row by row, in which `compacted_seeds` has their
    positions. The features that were fetched before are arranged likewise; `node_features` keeps those of the seeds.
    `sampled_subgraphs` and `edge_features` become None.

    Args:
        datapipe: Source of the mini-batches.
        align: Whether the newest neighbour is in the last place, or the oldest one in the first place.
        times: The time of each edge by its id, shape (edges, 1). None: the attribute of the graph that the sampler
            names.

    Raises:
        ValueError: No temporal sampler before, or one with types, `disjoint`, a fan-out of -1, or without times of
            edges.
        TypeError: The graph isn't in memory, and `times` is not given.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> times = torch.tensor([10, 20, 30])
        >>> graph = from_coo(([1, 2, 3], [0, 0, 0]), num_nodes=4, edge_attributes={"time": times})
        >>> pipe = ItemSampler(ItemSet(([0, 0], [15, 40]), names=("seeds", "timestamp")), batch_size=2)
        >>> pipe = pipe.temporal_sample_neighbor(graph, [2], edge_timestamp_attr_name="time", strategy="latest")
        >>> next(iter(pipe.to_matrix())).matrices[0].ids.tolist()
        [[-1, 1], [2, 3]]
    """

    align: Literal["right", "left"] = "right"
    times: Feature | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        align: object = self.align
        if not isinstance(align, str) or align not in ("right", "left"):
            raise ValueError(f"align must be 'right' or 'left', but is {brief(align)}")
        if self.times is not None and not isinstance(self.times, Feature):
            raise TypeError(f"times must be a Feature, but is {brief(self.times)}")
        found: list[Any] = find(self, TemporalSampler)
        if not found:
            raise ValueError("to_matrix needs a temporal sampler before it, such as temporal_sample_neighbor")
        request, graph = found[-1].request, found[-1].graph
        name = request.temporal.edge_timestamp_attr_name
        fanouts = [own[0] for own in request.fanouts]
        if request.disjoint or graph.edge_types or min(fanouts) < 0 or name is None:
            raise ValueError(
                "to_matrix needs a sampler with edge_timestamp_attr_name and fan-outs of 0 or more, without disjoint, "
                f"on a graph without types, but its fan-outs are {fanouts}, its types {graph.edge_types}"
            )
        self.__dict__.update(widths=fanouts[::-1], is_sorted=request.strategy == "latest")
        moments = self.times or TorchBasedFeature(times_by_id(graph, name)[:, None])
        self.__dict__["moments"] = moments

    def latest_sampler(self) -> TemporalNeighborSampler | None:
        """Return the sampler of the hops if `latest_of` returns the same matrices, else None."""
        sampler: Any = self.datapipe
        is_plain = type(self) is ToMatrix and type(sampler) is TemporalNeighborSampler and self.times is None
        return sampler if is_plain and has_latest(sampler.graph, sampler.request) else None

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if minibatch.sampled_subgraphs is None:
            raise ValueError("the mini-batch has no sampled_subgraphs; put a temporal sampler before to_matrix")
        result, hops = copy.copy(minibatch), list(minibatch.sampled_subgraphs)
        of_edges = minibatch.edge_features or [{}] * len(hops)
        of_nodes: dict[str, torch.Tensor] = minibatch.node_features or {}
        seeds: Any = with_nodes(minibatch)[1]
        columns = MatrixColumns(seeds.ids, seeds.times, 0, torch.arange(len(seeds.ids), device=seeds.ids.device))
        result.matrices = []
        for hop, features, width in zip(reversed(hops), reversed(of_edges), self.__dict__["widths"], strict=True):
            matrix, columns = self.arrange_hop(hop, of_nodes, features, width, columns)
            result.matrices.append(matrix)
        result.input_nodes, result.sampled_subgraphs, result.edge_features = seeds.ids, None, None
        if of_nodes:
            result.node_features = {name: own[: len(seeds.ids)] for name, own in of_nodes.items()}
        return result

    def arrange_hop(
        self,
        hop: SampledSubgraph,
        of_nodes: dict[str, torch.Tensor],
        of_edges: dict[str, torch.Tensor],
        width: int,
        columns: "MatrixColumns",
    ) -> tuple[NeighborMatrix, "MatrixColumns"]:
        """Return the matrix of a hop, and the columns of the next one."""
        ids, rows, first = columns.ids, columns.rows, columns.first
        starts, known = hop.sampled_csc.indptr[first:].long(), len(hop.original_column_node_ids)
        if len(hop.original_row_node_ids) != known + len(hop.original_edge_ids):
            raise ValueError("edges were removed after sampling; put to_matrix right after the sampler or the fetch")
        edges = slice(int(starts[0]), None)
        edge_ids = hop.original_edge_ids[edges]
        moments = self.__dict__["moments"].read(edge_ids).flatten().to(ids.device)
        counts = torch.zeros(len(ids), dtype=torch.int64, device=ids.device).scatter_(0, rows, starts.diff())
        mask, places = place_edges(counts, width, self.align)
        order = None if self.__dict__["is_sorted"] else by_row_and_time(rows, starts.diff(), moments)
        arrange = partial(arranged, mask, places, order)
        # Each edge has a separate row, after those of the columns.
        first = known + edges.start
        matrix = NeighborMatrix(
            seeds=ids,
            seed_times=columns.times,
            ids=arrange(hop.original_row_node_ids[first:], -1),
            times=arrange(moments, 0),
            edges=arrange(edge_ids, -1),
            mask=mask,
            node_features={name: arrange(own[first : first + len(edge_ids)], 0) for name, own in of_nodes.items()},
            edge_features={name: arrange(own[edges], 0) for name, own in of_edges.items()},
        )
        rows = places if order is None else torch.empty_like(places).scatter_(0, order, places)
        return matrix, MatrixColumns(matrix.ids.flatten(), matrix.times.flatten(), first, rows)


class MatrixColumns(NamedTuple):
    """The seeds of a hop: the columns without the first ones, which repeat earlier hops."""

    ids: torch.Tensor
    """Id of each row of the matrix of the hop; -1 where padded."""
    times: torch.Tensor
    """Time of each row of the matrix."""
    first: int
    """Position of the first of these columns in the hop."""
    rows: torch.Tensor
    """The row of the matrix that each column belongs to."""


def by_row_and_time(rows: torch.Tensor, counts: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Return the order of edges by the row of their matrix, and by time in each row; `rows` has `counts` edges each."""
    order = moments.argsort(stable=True)
    return order[rows.repeat_interleave(counts)[order].argsort(stable=True)]


def place_edges(counts: torch.Tensor, width: int, align: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mask of a matrix with a number of neighbours in each row, and the positions that are not padded."""
    offsets, numbers = (torch.arange(size, device=counts.device) for size in (width, width + 1))
    masks = offsets + numbers[:, None] >= width if align == "right" else offsets < numbers[:, None]
    mask = masks.index_select(0, counts)
    # NumPy takes a quarter of torch's time.
    if mask.is_cpu:
        return mask, torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask, mask.flatten().nonzero()[:, 0]


def arranged(
    mask: torch.Tensor, places: torch.Tensor, order: torch.Tensor | None, values: torch.Tensor, padding: int
) -> torch.Tensor:
    """Return rows, in an order, in the places of a mask, and the padding elsewhere."""
    values = values if order is None else values[order]
    out = values.new_full((mask.numel(), *values.shape[1:]), padding)
    return out.index_copy_(0, places, values).view(*mask.shape, *values.shape[1:])


def times_by_id(graph: Any, name: str) -> torch.Tensor:
    """Return the time of each edge, in the order of the edges' ids."""
    if not isinstance(graph, FusedCSCSamplingGraph):
        raise TypeError(f"to_matrix needs times for {kind_of(graph)}; pass the time of each edge as a Feature")
    times = as_times("the edges' timestamps", graph.edge_attribute(name))
    ids = (graph.edge_attributes or {}).get(ORIGINAL_EDGE_ID)
    if ids is None or len(ids) == 0:
        return times
    by_id = torch.zeros(int(ids.max()) + 1, dtype=torch.int64, device=times.device)
    by_id[ids.long()] = times
    return by_id
