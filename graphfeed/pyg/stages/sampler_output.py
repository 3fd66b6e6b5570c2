"""What PyG's samplers return, from sampled hops, and the mini-batches that carry it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, NeighborSampler, TemporalNeighborSampler, Transform, call
from graphfeed.datapipes.pipeline import traverse
from graphfeed.ops import Key
from graphfeed.ops.sampling import JoinedHops
from graphfeed.ops.structure import mirror_edges
from graphfeed.pyg.data.data_graph import reverse_type
from graphfeed.pyg.data.minibatch_data import pick
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


class JoinedNeighborSampler(NeighborSampler):
    """Samples as `graphfeed.NeighborSampler`, and has its graph join the hops: only `ToSamplerOutput` can follow.

    `fanouts` has one number per hop, the outermost hop first. A loader of PyG's kind has this stage.
    """

    asks = "sample_joined"


class JoinedTemporalSampler(TemporalNeighborSampler):
    """Does as `JoinedNeighborSampler` in time, as `graphfeed.TemporalNeighborSampler` samples.

    `fanouts` has one number per hop, the outermost hop first.
    """

    asks = "sample_joined"


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
        """Return the fields of a sampler's output."""
        names = {name: name and relation_of(name, self.backward) for name in hops.edges}
        lines = {names[name]: part.unbind() for name, part in hops.edges.items()}
        ends = (1, 0) if self.backward else (0, 1)
        fields: dict[str, dict[Any, Any]] = {
            "node": {name: rows.long() for name, rows in hops.rows.items()},
            "row": {name: part[ends[0]] for name, part in lines.items()},
            "col": {name: part[ends[1]] for name, part in lines.items()},
            "edge": {name: part[2] if len(part) > 2 else None for name, part in lines.items()},
        }
        if self.subgraph_type != "induced":
            # Where there are no hops, the one that stands for none does not count.
            last = None if self.has_hops else -1
            fields["num_sampled_nodes"] = {name: counts[:last] for name, counts in hops.num_rows.items()}
            fields["num_sampled_edges"] = {names[name]: counts[:last] for name, counts in hops.num_edges.items()}
        if self.disjoint:
            fields["batch"] = dict(hops.trees or {})
        return {name: from_type_dict(values) for name, values in fields.items()}


def joined_hops(minibatch: SampledMiniBatch, stage: str, *, disjoint: bool) -> JoinedHops:
    """Return all hops of a mini-batch as one, with the trees that its seeds have."""
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
    """Return a sampler's output with the reverse of each edge, and each pair of nodes once, sorted by destination."""
    if isinstance(output.row, dict) or not output.row.is_cpu:
        # With types, the ids get lost where edges of two types are joined, as in PyG.
        return output.to_bidirectional()
    row, col, edge = mirror_edges(output.row, output.col, len(output.node), output.edge)
    return replace(
        output, row=row, col=col, edge=output.edge if output.edge is None else edge, num_sampled_nodes=None,
        num_sampled_edges=None,
    )  # fmt: skip


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
    return MiniBatch(**fields, key=Key(int(torch.randint(1 << 62, (), device="cpu")), 0, 0))


def random_links(inputs: Any) -> MiniBatch:
    """Return a mini-batch of the edges of PyG's `EdgeSamplerInput`, seeded as by `random_minibatch`."""
    values = {"seeds": torch.stack([inputs.row, inputs.col], dim=1), "labels": inputs.label, "timestamp": inputs.time}
    minibatch = random_minibatch(values, type_name(inputs.input_type and tuple(inputs.input_type)))
    minibatch.input_id = inputs.input_id  # type: ignore[attr-defined]
    return minibatch
