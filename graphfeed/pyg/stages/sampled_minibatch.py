"""The mini-batches of PyG's loaders: what was sampled in PyG's form, and what the data hold of the seeds."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.pyg.data.minibatch_data import pick
from graphfeed.storage.graph import ByType, by_type_name, to_type_dict


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
