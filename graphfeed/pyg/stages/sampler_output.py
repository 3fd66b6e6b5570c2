"""Conversion of sampled hops to the outputs of PyG's samplers, and the mini-batches that contain them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, NeighborSampler, TemporalNeighborSampler, Transform, apply_stages
from graphfeed.datapipes.pipeline import traverse
from graphfeed.ops import Key
from graphfeed.ops.sampling import JoinedHops
from graphfeed.ops.structure import mirror_edges
from graphfeed.pyg.data.fill_batch import pick_columns
from graphfeed.pyg.data.graph_of_data import reverse_type
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage.graph import (
    ByType,
    by_type_name,
    etype_str_to_tuple,
    from_type_dict,
    join_hops,
    to_type_dict,
    type_name,
)


@dataclass(repr=False, eq=False)
class SampledMiniBatch(MiniBatch):
    """A mini-batch with the nodes and edges of a sampler output."""

    # All edges count as one layer, so that `fetch_feature` reads the features of each type once, in order.
    output: Any = field(default=None, kw_only=True)
    """A `torch_geometric.sampler.SamplerOutput`, or a `HeteroSamplerOutput`. Its edges have the ids of the data."""
    of_seeds: dict[Any, dict[str, Any]] | None = field(default=None, kw_only=True)
    """Attributes of the seeds for the data, by type; under None in a graph without types."""
    metadata: tuple[Any, ...] = field(default=(), kw_only=True)
    """The `metadata` of the sampler output, which describe the seeds."""
    trees: ByType | None = field(default=None, kw_only=True)
    """The tree of each seed node if trees are disjoint; None: each seed node has its own."""

    def node_ids(self) -> ByType | None:
        return super().node_ids() if self.output is None else ids_of(self.output.node)

    def num_layers(self) -> int:
        # Without the ids of the edges, nothing can be fetched for them, so there is no layer.
        return super().num_layers() if self.output is None else int(self.output.edge is not None)

    def edge_ids(self, layer_id: int) -> ByType | None:
        return super().edge_ids(layer_id) if self.output is None else ids_of(self.output.edge)


def transform_output(function: Callable[[Any], Any], minibatch: SampledMiniBatch) -> SampledMiniBatch:
    """Replace the sampler output of a mini-batch by a function of it."""
    result = copy.copy(minibatch)
    result.output = function(minibatch.output)
    return result


def ids_of(ids: Any) -> ByType | None:
    if ids is None or isinstance(ids, torch.Tensor):
        return ids
    return {type_name: part for type_name, part in by_type_name(ids).items() if part is not None}


def as_sampled(minibatch: MiniBatch, *, report_time: bool = False) -> SampledMiniBatch:
    """Copy a mini-batch, and add attributes of its seeds for the data; by default, for seeds that are nodes."""
    if isinstance(minibatch, SampledMiniBatch):
        return copy.copy(minibatch)
    result = SampledMiniBatch()
    vars(result).update(vars(minibatch))
    ids, times = getattr(minibatch, "input_id", None), minibatch.timestamp if report_time else None
    seeds: dict[Any, torch.Tensor] = {} if minibatch.seeds is None else to_type_dict(minibatch.seeds)
    result.metadata = (only_type(ids), only_type(times))
    result.of_seeds = {
        node_type: {
            "input_id": pick_columns(ids, node_type),
            "seed_time": pick_columns(times, node_type),
            "batch_size": len(part),
        }
        for node_type, part in seeds.items()
    }
    return result


def only_type(values: Any) -> Any:
    return next(iter(values.values())) if isinstance(values, dict) and len(values) == 1 else values


class JoinedNeighborSampler(NeighborSampler, seeded=False):
    """Samples like `graphfeed.NeighborSampler`, but the graph joins the hops: only `ToSamplerOutput` can follow.

    `fanouts` has one number per hop, the outermost hop first. PyG's loaders use this stage.
    """

    asks = "sample_joined"
    asks_for_window = "sample_each_joined"


class JoinedTemporalSampler(TemporalNeighborSampler, seeded=False):
    """Samples like `graphfeed.TemporalNeighborSampler`, but the graph joins the hops, as for `JoinedNeighborSampler`.

    `fanouts` has one number per hop, the outermost hop first.
    """

    asks = "sample_joined"
    asks_for_window = "sample_each_joined"


class ToSamplerOutput(Transform, keeps_size=True, seeded=False):
    """Turns sampled hops into a PyG `SamplerOutput`, or a `HeteroSamplerOutput` if the graph has types.

    The preceding sampler must sample the in-edges of each node only once (`only_new`, or `disjoint`). Nodes and edges
    are in the order of the hops, beginning with the seeds and the edges to them.

    Raises:
        ValueError: When it runs: a mini-batch was not sampled.
    """

    disjoint: bool = False
    """Whether each seed has its own tree; `batch` is then the seed that each node belongs to."""
    report_time: bool = False
    """Whether the data get the times of the seeds in addition to their `input_id`."""
    subgraph_type: str = "directional"
    """"bidirectional" adds missing reverse edges. "induced" means that the subgraph is one hop with all edges."""
    backward: bool = False
    """Whether the edges of the hops are the reversed edges of the data."""
    has_hops: bool = True
    """Whether hops were requested. If not, there is one hop without edges, which is not counted."""

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        sampler = import_pyg("torch_geometric.sampler", "ToSamplerOutput")
        result = as_sampled(minibatch, report_time=self.report_time)
        hops = joined_hops(result, "ToSamplerOutput", disjoint=self.disjoint)
        output = (sampler.SamplerOutput if None in hops.rows else sampler.HeteroSamplerOutput)(
            **self.fields_of(hops), metadata=result.metadata
        )
        if self.subgraph_type == "bidirectional":
            output = to_bidirectional(output)
        result.output, result.sampled_subgraphs = output, None
        return result

    def fields_of(self, hops: JoinedHops) -> dict[str, Any]:
        """Return the fields of a sampler output."""
        names = {name: name and relation_of(name, self.backward) for name in hops.edges}
        lines = {names[name]: part.unbind() for name, part in hops.edges.items()}
        ends = (1, 0) if self.backward else (0, 1)
        fields: dict[str, dict[Any, Any]] = {
            "node": {name: rows.long() for name, rows in hops.rows.items()},
            "row": {name: part[ends[0]] for name, part in lines.items()},
            "col": {name: part[ends[1]] for name, part in lines.items()},
            "edge": {names[name]: part for name, part in hops.edge_ids.items()},
        }
        if self.subgraph_type != "induced":
            # Without hops, don't count the empty one.
            last = None if self.has_hops else -1
            fields["num_sampled_nodes"] = {name: counts[:last] for name, counts in hops.num_rows.items()}
            fields["num_sampled_edges"] = {names[name]: counts[:last] for name, counts in hops.num_edges.items()}
        if self.disjoint:
            fields["batch"] = dict(hops.trees or {})
        return fields if None not in hops.rows else {name: from_type_dict(own) for name, own in fields.items()}


def joined_hops(minibatch: SampledMiniBatch, stage: str, *, disjoint: bool) -> JoinedHops:
    """Return all hops of a mini-batch as one, with the trees of its seeds."""
    found: Any = minibatch.sampled_subgraphs
    if not found:
        raise ValueError(f"the mini-batch has no sampled_subgraphs yet; put a sampler before {stage}")
    hops: JoinedHops = found if isinstance(found, JoinedHops) else join_hops(found, disjoint=disjoint)
    if hops.trees is not None and minibatch.trees is not None:
        known = to_type_dict(minibatch.trees)
        numbers = torch.cat([known[name] for name in hops.rows if name in known])
        return hops._replace(trees={name: numbers[own] for name, own in hops.trees.items()})
    return hops


@lru_cache(maxsize=1024)
def relation_of(name: str, backward: bool) -> tuple[str, str, str]:
    return etype_str_to_tuple(reverse_type(name) if backward else name)


def to_bidirectional(output: Any) -> Any:
    """Return a sampler output with the reverse of each edge, without duplicates and sorted by destination."""
    if isinstance(output.row, dict) or not output.row.is_cpu:
        # With types, joining the edges of two types loses the ids, as in PyG.
        return output.to_bidirectional()
    row, col, edge = mirror_edges(output.row, output.col, len(output.node), output.edge)
    return replace(
        output, row=row, col=col, edge=output.edge if output.edge is None else edge, num_sampled_nodes=None,
        num_sampled_edges=None,
    )  # fmt: skip


def edge_index_of(row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    # Without a copy if the columns follow the rows in the same tensor, which often has nothing else.
    base, count = row._base, row.shape[0]
    is_one = base is not None and base is col._base and row.dtype == col.dtype and count > 0
    is_one = is_one and row.storage_offset() + count == col.storage_offset()
    if base is None or not (is_one and row.is_contiguous() and col.is_contiguous()):
        return torch.stack([row, col])
    if base.shape == (2, count) and base.dtype == row.dtype and base.is_contiguous():
        return base
    return row.as_strided((2, count), (count, 1))


def call_stages(pipe: Datapipe, minibatch: Any) -> Any:
    """Apply the stages after the source to a mini-batch.

    Nothing is iterated, so the workers of a torch loader do not split the single mini-batch among them.
    """
    return apply_stages([stage for stage in traverse(pipe)[1:] if isinstance(stage, Transform)], minibatch)


def random_minibatch(values: dict[str, Any], seed_type: str | None) -> MiniBatch:
    """Return a mini-batch of the fields that are not None, by type if there is one, with a random key."""
    given = {name: value for name, value in values.items() if value is not None}
    fields = given if seed_type is None else {name: {seed_type: value} for name, value in given.items()}
    # The random seed comes from torch's default generator, which torch's loaders seed in each of their workers.
    return MiniBatch(**fields, key=Key(int(torch.randint(1 << 62, (), device="cpu")), 0, 0))


def random_links(inputs: Any) -> MiniBatch:
    """Return a mini-batch of the edges of a PyG `EdgeSamplerInput`, with a random key."""
    values = {"seeds": torch.stack([inputs.row, inputs.col], dim=1), "labels": inputs.label, "timestamp": inputs.time}
    minibatch = random_minibatch(values, type_name(inputs.input_type and tuple(inputs.input_type)))
    minibatch.input_id = inputs.input_id  # type: ignore[attr-defined]
    return minibatch
