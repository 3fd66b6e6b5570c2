"""PyG's `NodeLoader`: mini-batches around nodes, by any sampler."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg.data.data_features import read_features
from graphfeed.pyg.data.input_nodes import InputNodes, read_input_nodes
from graphfeed.pyg.loaders.extra_options import ExtraOptions
from graphfeed.pyg.loaders.pyg_loader import PyGLoader
from graphfeed.pyg.loaders.torch_options import read_options
from graphfeed.pyg.stages.sample_with import SampleWith


class NodeLoader(PyGLoader):
    """Makes mini-batches around nodes with any of PyG's samplers, or this package's (`graphfeed.pyg.NeighborSampler`).

    The arguments, their order and the batches are those of `torch_geometric.loader.NodeLoader`; docs/from-pyg.md has a
    table. A `NeighborSampler` of this package becomes stages of the pipeline. Any other sampler is a stage that calls
    its `sample_from_nodes`; what it draws from torch's, NumPy's and Python's generators is seeded for each mini-batch.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData`, or a pair (`FeatureStore`, `GraphStore`).
        node_sampler: The sampler.
        input_nodes: The seeds: ids or a mask; None is all nodes. With types: a node type, a tuple of one and ids, a
            mask or None, or a dict of these by node type.
        input_time: The time of each seed. Seeds need it where what is sampled has times and they have none.
        transform: A function of each `Data`.
        transform_sampler_output: A function of each sampler's output, before features are fetched.
        filter_per_worker: Whether workers fetch features (True) or the main process does; None: where it is faster.
        custom_cls: What mini-batches of a pair of stores are made of; otherwise only None.
        input_id: What `input_id` says of each seed, in place of its position.
        kwargs: The arguments of torch's `DataLoader`, and `seed`, `worker`, `executor` and `observer` of
            `graphfeed.DataLoader`; `TorchOptions` says what each means. Also `time_window`, how far back from its time
            each seed may look, and `as_edge_index`, which makes `edge_index` an `EdgeIndex`; see `ExtraOptions`.
    """

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
        more = ExtraOptions.take(kwargs, node_sampler, "time_window", "as_edge_index")
        options = read_options(type(self).__name__, data, custom_cls, kwargs)
        is_own = hasattr(node_sampler, "append_to")
        seeds = InputNodes(input_nodes, input_time, input_id, window=more.time_window)
        if is_own:
            seeds = seeds._replace(node_times=node_sampler.node_times, time_attr=node_sampler.time_attr)
        nodes = read_input_nodes(data, seeds)
        pipe = options.source(nodes.items)
        if not is_own:
            pipe = SampleWith(pipe, node_sampler, nodes.input_type, input_time is not None)
        else:
            pipe = node_sampler.append_to(pipe, input_time is not None)
        self.node_sampler, self.transform = node_sampler, transform
        self.input_nodes, self.input_time, self.input_id = input_nodes, input_time, input_id
        self.transform_sampler_output, self.filter_per_worker = transform_sampler_output, filter_per_worker
        pipe = self._fill(pipe, read_features(data, custom_cls), more.as_edge_index)
        super().__init__(pipe, options, data)
