"""PyG's loaders of nodes: mini-batches around seed nodes, with any sampler."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg.data.features_of_data import features_of_data
from graphfeed.pyg.data.read_input import InputNodes, read_input_nodes
from graphfeed.pyg.loaders.pyg_loader import SHARE, ExtraOptions, PyGLoader, read_options, weights_of
from graphfeed.pyg.stages.sample_with import SampleWith, check_sampler


class NodeLoader(PyGLoader):
    """Yields mini-batches around nodes, sampled by any of PyG's samplers or by `graphfeed.pyg.NeighborSampler`.

    The arguments, their order and the batches are those of `torch_geometric.loader.NodeLoader`; docs/from-pyg.md has a
    table. A `NeighborSampler` of this package becomes stages of the pipeline. Any other sampler becomes a stage that
    calls its `sample_from_nodes`, with torch's, NumPy's and Python's generators seeded for each mini-batch.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData`, or a pair (`FeatureStore`, `GraphStore`).
        node_sampler: The sampler.
        input_nodes: The seeds: ids or a mask; None: all nodes. With types: a node type, a tuple of one and ids, a mask
            or None, or a dict of these by node type.
        input_time: The time of each seed; required for temporal sampling if the seed nodes have no times.
        transform: A function applied to each `Data`.
        transform_sampler_output: A function applied to each sampler output, before features are fetched.
        filter_per_worker: Whether workers (True) or the main process (False) fetch features; None: whichever is faster.
        custom_cls: Class of the mini-batches of a pair of stores; None for other data.
        input_id: Value of `input_id` for each seed, instead of its position.
        kwargs: The arguments of torch's `DataLoader`, and `seed`, `worker`, `executor`, `observer` and `window` of
            `graphfeed.DataLoader` (see `TorchOptions`); `time_window`, the width of the time window before each seed,
            and `as_edge_index`, which makes `edge_index` an `EdgeIndex` (see `ExtraOptions`).
    """

    how_to_share = f"give each rank its own share of input_nodes, or pass {SHARE}"

    @checked
    def __init__(
        self,
        data: Any,
        node_sampler: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        check_sampler(node_sampler)
        more = ExtraOptions.split_from(kwargs, node_sampler, "time_window", "as_edge_index")
        options = read_options(type(self).__name__, data, custom_cls, kwargs)
        is_own = hasattr(node_sampler, "append_to")
        seeds = InputNodes(input_nodes, input_time, input_id, window=more.time_window)
        if is_own:
            seeds = seeds._replace(node_times=node_sampler.node_times, time_attr=node_sampler.time_attr)
        nodes = read_input_nodes(data, seeds)
        pipe = options.source(nodes.items)
        if is_own:
            pipe = node_sampler.append_to(pipe, input_time is not None)
        else:
            pipe = SampleWith(pipe, node_sampler, nodes.input_type, input_time is not None)
        self.node_sampler, self.transform = node_sampler, transform
        self.input_nodes, self.input_time, self.input_id = input_nodes, input_time, input_id
        self.transform_sampler_output, self.filter_per_worker = transform_sampler_output, filter_per_worker
        features = features_of_data(data, custom_cls, weights_of(node_sampler))
        pipe = self._fill(pipe, features, more.as_edge_index)
        super().__init__(pipe, options, data)
