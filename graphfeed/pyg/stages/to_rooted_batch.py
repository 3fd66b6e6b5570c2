"""The subgraphs of several roots as PyG's `Batch`."""

from typing import Any

import torch

from graphfeed.datapipes import Transform
from graphfeed.pyg.data.tables import import_pyg

LEFT_OUT = ("batch", "batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges")


class ToRootedBatch(Transform):
    """Turns a `Data` whose `batch` rises, with a root at the start of each part, into a PyG `Batch` of these parts.

    It has `ptr`, where each part begins, and `root_n_id`, the rows of the roots.
    """

    labels_of_roots: bool = False
    """Whether `y` belongs to nodes, so that only the roots' is kept."""

    same_size = True

    def __call__(self, data: Any) -> Any:
        counts = torch.bincount(data.batch, minlength=data.batch_size)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        module = import_pyg("torch_geometric.data", "ToRootedBatch")
        batch = module.Batch(batch=data.batch, ptr=ptr)
        batch.root_n_id = ptr[:-1]
        for name, value in data.stores[0].items():
            if name not in LEFT_OUT:
                batch[name] = value[batch.root_n_id] if name == "y" and self.labels_of_roots else value
        return batch
