"""PyG's `ClusterLoader`: several clusters of a graph with the edges among them."""

import copy
from functools import partial
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, MiniBatch
from graphfeed.ops.structure import expand_indptr
from graphfeed.pyg.data.data_features import FLAT, DataFeatures, read_features
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.loaders.cluster_data import ClusterData
from graphfeed.pyg.loaders.pyg_loader import PyGLoader
from graphfeed.pyg.loaders.torch_options import TorchOptions
from graphfeed.pyg.stages.to_sampler_output import ToSamplerOutput
from graphfeed.storage import ItemSet, TorchBasedFeature, from_coo


class ClusterLoader(PyGLoader):
    """Joins clusters into mini-batches with all edges among them, as `torch_geometric.loader.ClusterLoader` does.

    A mini-batch has the nodes of its clusters, one cluster after the other, and `n_id` and `e_id` besides, the ids of
    nodes and edges in the data that were clustered.

    Args:
        cluster_data: A `graphfeed.pyg.ClusterData`, or PyG's.
        kwargs: The arguments of torch's `DataLoader`, and some of `graphfeed.DataLoader`; see `NodeLoader`.
            `batch_size` is the number of clusters of a mini-batch.

    Raises:
        TypeError: Something else than a `ClusterData`.
    """

    is_subgraph = True

    def __init__(self, cluster_data: Any, **kwargs: Any) -> None:
        theirs = import_pyg("torch_geometric.loader", type(self).__name__).ClusterData
        if not isinstance(cluster_data, (ClusterData, theirs)):
            raise TypeError(f"cluster_data must be a ClusterData, but is a {type(cluster_data).__name__}")
        options = TorchOptions.of(kwargs, type(self).__name__)
        part = cluster_data.partition
        # The columns of a graph have edges to them; those that are grouped by source are turned around.
        backward = part.sparse_format == "csr"
        ends = (part.index, expand_indptr(part.indptr, torch.int64, output_size=len(part.index)))
        graph = from_coo(ends, len(part.node_perm))
        self.cluster_data, self._edge_index = cluster_data, torch.stack(ends[::-1] if backward else ends)
        parts = options.source(ItemSet(len(cluster_data), names="seeds"))
        nodes = parts.transform(partial(take_parts, tuple(part.partptr.tolist())))
        pipe: Datapipe = ToSamplerOutput(nodes.induce_subgraph(graph), subgraph_type="induced", backward=backward)
        super().__init__(self._fill(pipe, self._read_features()), options, cluster_data.data)

    def _read_features(self) -> DataFeatures:
        data, part = copy.copy(self.cluster_data.data), self.cluster_data.partition
        data.edge_index = self._edge_index
        features = read_features(data)
        for domain, name, ids in (("node", "n_id", part.node_perm), ("edge", "e_id", part.edge_perm)):
            names = (features.node_names if domain == "node" else features.edge_names)[None]
            if name not in names:  # the data may have an attribute of that name
                features.store[domain, None, name] = TorchBasedFeature(ids[:, None])
                names.append(name)
                features.dims[None, name] = FLAT
        return features


def take_parts(bounds: tuple[int, ...], minibatch: MiniBatch) -> MiniBatch:
    """Give a mini-batch the nodes of the parts that its seeds number, part by part; `bounds` has each part's first."""
    parts: Any = minibatch.seeds
    result = copy.copy(minibatch)
    result.input_nodes = torch.cat([torch.arange(bounds[part], bounds[part + 1]) for part in parts.tolist()])
    result.seeds = None
    return result
