"""What PyG's samplers return, from sampled hops, and the mini-batches that carry it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import Datapipe, MiniBatch, Transform, call
from graphfeed.datapipes.pipeline import traverse
from graphfeed.ops import Key
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure import expand_indptr, join_columns
from graphfeed.pyg.data.data_graph import reverse_type
from graphfeed.pyg.data.minibatch_data import pick
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage.graph import (
    ByType,
    CSCFormatBase,
    SampledSubgraph,
    by_type_name,
    etype_str_to_tuple,
    to_type_dict,
    trees_of_rows,
    type_name,
)


@dataclass(repr=False, eq=False)
class SampledMiniBatch(MiniBatch):
    """A mini-batch whose nodes and edges are those of a sampler's output."""

    # All edges count as one layer: so `fetch_feature` reads the features of each type once, in the order of the data.
    output: Any = field(default=None, kw_only=True)
    """A `torch_geometric.sampler.SamplerOutput`, or a `HeteroSamplerOutput`. Its edges have the ids of the data."""
    of_seeds: dict[Any, dict[str, Any]] | None = field(default=None, kw_only=True)
    """What the data hold of the seeds, by type, of a graph without types by None."""
    metadata: tuple[Any, ...] = field(default=(), kw_only=True)
    """What the sampler's output says of the seeds."""
    trees: ByType | None = field(default=None, kw_only=True)
    """The tree of each seed that nodes are sampled around, where trees are disjoint; None: each has its own."""

    def node_ids(self) -> ByType | None:
        return super().node_ids() if self.output is None else ids_of(self.output.node)

    def num_layers(self) -> int:
        # Without the ids of the edges there is nothing to fetch for them, so there is no layer.
        return super().num_layers() if self.output is None else int(self.output.edge is not None)

    def edge_ids(self, layer_id: int) -> ByType | None:
        return super().edge_ids(layer_id) if self.output is None else ids_of(self.output.edge)


def transform_output(function: Callable[[Any], Any], minibatch: SampledMiniBatch) -> SampledMiniBatch:
    """Return a mini-batch with what a function makes of its sampler's output in place of that output."""
    result = copy.copy(minibatch)
    result.output = function(minibatch.output)
    return result


def ids_of(ids: Any) -> ByType | None:
    if ids is None or isinstance(ids, torch.Tensor):
        return ids
    return {type_name: part for type_name, part in by_type_name(ids).items() if part is not None}


def as_sampled(minibatch: MiniBatch, *, report_time: bool = False) -> SampledMiniBatch:
    """Return a copy of a mini-batch that knows what the data hold of its seeds; by default, of seeds that are nodes."""
    if isinstance(minibatch, SampledMiniBatch):
        return copy.copy(minibatch)
    result = SampledMiniBatch()
    vars(result).update(vars(minibatch))
    ids, times = getattr(minibatch, "input_id", None), minibatch.timestamp if report_time else None
    seeds: dict[Any, torch.Tensor] = {} if minibatch.seeds is None else to_type_dict(minibatch.seeds)
    result.metadata = (only_type(ids), only_type(times))
    result.of_seeds = {
        node_type: {"input_id": pick(ids, node_type), "seed_time": pick(times, node_type), "batch_size": len(part)}
        for node_type, part in seeds.items()
    }
    return result


def only_type(values: Any) -> Any:
    return next(iter(values.values())) if isinstance(values, dict) and len(values) == 1 else values


class ToSamplerOutput(Transform):
    """Turns sampled hops into a PyG `SamplerOutput`, or a `HeteroSamplerOutput` if the graph has types.

    The sampler before it samples each node once (`only_new`, or `disjoint`). Nodes and edges are in the order of the
    hops, the seeds and the edges to them first.

    Raises:
        ValueError: When it runs: a mini-batch that was not sampled.
    """

    disjoint: bool = False
    """Whether each seed has nodes of its own, so that `batch` says to which seed a node belongs."""
    report_time: bool = False
    """Whether the data hold the times of the seeds, beside their `input_id`."""
    subgraph_type: str = "directional"
    """"bidirectional" adds the reverse of each edge that lacks it. "induced": the subgraph is one hop of all edges."""
    backward: bool = False
    """Whether the edges of the hops are those of the data the other way around."""
    has_hops: bool = True
    """Whether the hops count; otherwise, the seeds alone were asked for, and a hop without edges stands for none."""

    same_size = True

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        if not minibatch.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before ToSamplerOutput")
        sampler = import_pyg("torch_geometric.sampler", "ToSamplerOutput")
        hops = minibatch.sampled_subgraphs[::-1]
        typed = isinstance(hops[0].sampled_csc, dict)
        output = (sampler.HeteroSamplerOutput if typed else sampler.SamplerOutput)(
            **join_hops(hops, backward=self.backward)
        )
        if not self.has_hops:
            for counts in (output.num_sampled_nodes, output.num_sampled_edges):
                for own in counts.values() if typed else [counts]:
                    # The hop that stands for none.
                    own.pop()
        if self.subgraph_type == "induced":
            output.num_sampled_nodes = output.num_sampled_edges = None
        if self.subgraph_type == "bidirectional":
            output = to_bidirectional(output)
        result = as_sampled(minibatch, report_time=self.report_time)
        if self.disjoint:
            output.batch = trees_of_rows(minibatch.sampled_subgraphs, result.trees)
        output.metadata = result.metadata
        result.output, result.sampled_subgraphs = output, None
        return result


EDGE_FIELDS = ("row", "col", "edge", "num_sampled_edges")
"""The fields of a sampler's output about edges."""


def join_hops(hops: Sequence[SampledSubgraph], *, backward: bool = False) -> dict[str, Any]:
    """Return the fields of a sampler's output, of hops the innermost first; `backward` turns the edges around."""
    seeds: Any = hops[0].original_column_node_ids
    # The rows of each hop begin with those of the one before it.
    rows: list[Any] = [seeds, *(hop.original_row_node_ids for hop in hops)]
    ids: list[Any] = [hop.original_edge_ids for hop in hops]
    cscs: list[Any] = [hop.sampled_csc for hop in hops]
    if isinstance(cscs[0], CSCFormatBase):
        edges = join_edges(cscs, ids, backward=backward)
        return {**edges, "node": rows[-1].long(), "num_sampled_nodes": added(list(map(len, rows)))}
    by_type = {
        etype_str_to_tuple(reverse_type(edge_type) if backward else edge_type): join_edges(
            [csc[edge_type] for csc in cscs], [of_hop and of_hop[edge_type] for of_hop in ids], backward=backward
        )
        for edge_type in cscs[0]
    }
    sizes = {node_type: [len(of_hop.get(node_type, ())) for of_hop in rows] for node_type in rows[-1]}
    return {
        **{name: {edge_type: edges[name] for edge_type, edges in by_type.items()} for name in EDGE_FIELDS},
        "node": {node_type: nodes.long() for node_type, nodes in rows[-1].items()},
        "num_sampled_nodes": {node_type: added(counts) for node_type, counts in sizes.items()},
    }


def added(sizes: list[int]) -> list[int]:
    # How many rows the seeds are, and how many each hop adds.
    return [after - before for before, after in pairwise([0, *sizes])]


def join_edges(cscs: Sequence[CSCFormatBase], ids: Sequence[torch.Tensor | None], *, backward: bool) -> dict[str, Any]:
    """Return the edges of one type in all hops, hop after hop; row and column are the two rows of one tensor."""
    counts = [len(csc.indices) for csc in cscs]
    device = cscs[0].indices.device
    known = [part for part in ids if part is not None]
    if device.type == "cpu" and not backward and len(known) == len(cscs):
        hops = [hop for hop in zip(cscs, known, counts, strict=True) if hop[2]]
        joined = join_columns(
            [csc.indptr for csc, _, _ in hops], [csc.indices for csc, _, _ in hops], [own for _, own, _ in hops]
        )
        return dict(zip(EDGE_FIELDS, (*joined, counts), strict=True))
    index = buffers.empty((2, sum(counts)), torch.int64, device)
    # Where edges are reversed, the columns are their sources.
    join([csc.indices for csc in cscs], index[int(backward)])
    for csc, part in zip(cscs, torch.split(index[1 - int(backward)], counts), strict=True):
        expand_indptr(csc.indptr, dtype=torch.int64, output_size=len(part), out=part)
    edge = None
    if len(known) == len(cscs):
        edge = known[0].long() if len(known) == 1 else join(known, buffers.empty(sum(counts), torch.int64, device))
    return dict(zip(EDGE_FIELDS, (*index, edge, counts), strict=True))


def join(parts: Sequence[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """Write tensors one behind the other, and return the result."""
    if not out.is_cpu:
        return torch.cat([part.to(out.dtype) for part in parts], out=out)
    # By NumPy, in this thread: torch.cat wakes a pool of threads, which takes several times as long beside others.
    whole, position = out.numpy(), 0
    for part in parts:
        whole[position : position + len(part)] = part.numpy()
        position += len(part)
    return out


def to_bidirectional(output: Any) -> Any:
    """Return a sampler's output with the reverse of each edge, and each pair of nodes once, sorted by destination."""
    if isinstance(output.row, dict):
        # The ids get lost where edges of two types are joined, as in PyG.
        return output.to_bidirectional()
    row, col = torch.cat([output.row, output.col]), torch.cat([output.col, output.row])
    names, positions = sort_stably(col * len(output.node) + row, len(output.node) ** 2)
    is_first = torch.ones_like(names, dtype=torch.bool)
    torch.ne(names[1:], names[:-1], out=is_first[1:])
    # The sort is stable: a sampled edge keeps its id, the first one of parallel edges.
    positions = positions[is_first]
    # The second half are the reverses of the first, in the same order.
    edge = None if output.edge is None else output.edge[positions % max(len(output.row), 1)]
    counts = {"num_sampled_nodes": None, "num_sampled_edges": None}
    return replace(output, row=row[positions], col=col[positions], edge=edge, **counts)


def sort_stably(values: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what tells numbers below a limit apart, in their order, and their positions; equal ones stay in order."""
    size = len(values)
    if not values.is_cpu or limit * size >= 1 << 63:
        return torch.sort(values, stable=True)
    # NumPy sorts plain numbers in a fifth of the time: here the value is the upper part, and its place the lower.
    joined = np.sort((values * size).numpy() + np.arange(size))
    positions = joined % max(size, 1)
    return torch.from_numpy(joined - positions), torch.from_numpy(positions)


def edge_index_of(row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    count = len(row)
    same = row.is_contiguous() and col.is_contiguous() and row.untyped_storage().data_ptr() == (
        col.untyped_storage().data_ptr()
    )  # fmt: skip
    # A view of the memory in which both lie side by side.
    if same and count and col.storage_offset() == row.storage_offset() + count and row.dtype == col.dtype:
        return row.as_strided((2, count), (count, 1))
    return torch.stack([row, col])


def call_stages(pipe: Datapipe, minibatch: Any) -> Any:
    """Return what the stages behind a pipeline's source make of a mini-batch.

    Nothing is iterated, so the workers of a loader of torch's do not share the one mini-batch among them.
    """
    return call([stage for stage in traverse(pipe)[1:] if isinstance(stage, Transform)], minibatch)


def random_minibatch(values: dict[str, Any], seed_type: str | None) -> MiniBatch:
    """Return a mini-batch of some fields, by type if there is one; those that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    fields = given if seed_type is None else {name: {seed_type: value} for name, value in given.items()}
    # The seed comes from torch's default generator, which loaders of torch's seed in each of their workers.
    return MiniBatch(**fields, key=Key(int(torch.randint(1 << 62, ())), 0, 0))


def random_links(inputs: Any) -> MiniBatch:
    """Return a mini-batch of the edges of PyG's `EdgeSamplerInput`, seeded as by `random_minibatch`."""
    values = {"seeds": torch.stack([inputs.row, inputs.col], dim=1), "labels": inputs.label, "timestamp": inputs.time}
    minibatch = random_minibatch(values, type_name(inputs.input_type and tuple(inputs.input_type)))
    minibatch.input_id = inputs.input_id  # type: ignore[attr-defined]
    return minibatch
