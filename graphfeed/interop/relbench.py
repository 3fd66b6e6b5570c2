"""Names for programs of RelBench: its `LinkNeighborLoader`, and mini-batches with a `TensorFrame` per node type.

The loader is `graphfeed.pyg.ListedLinkLoader`. Programs for entity tasks use `graphfeed.pyg.NeighborLoader`, and
`graphfeed.ingest.from_relbench` reads the folders.
"""

import copy
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.ops.process import import_optional, install_hint, load_entry_point
from graphfeed.storage import FeatureStore


def to_frames(minibatch: MiniBatch, features: FeatureStore) -> Any:
    """Return PyG's data of a mini-batch, in which each node type has its columns as `tf`, a `TensorFrame`.

    Numbers are numerical columns, with the values that replaced missing ones; categories are categorical columns, in
    which -1 is missing. A type without columns gets `__const__`, a column of ones, as in RelBench.

    Args:
        minibatch: A mini-batch of a graph with types, with node features of one column each.
        features: The store that they were fetched from, which has the categories, such as `dataset.feature`.

    Raises:
        ImportError: pytorch-frame is not installed.

    Example:
        >>> for minibatch in train:  # doctest: +SKIP
        ...     model(to_frames(minibatch, data.feature).tf_dict)
    """
    frames = import_optional("torch_frame", "a TensorFrame", install_hint("relbench"))
    bare, fetched = copy.copy(minibatch), minibatch.node_features or {}
    bare.node_features = None
    data = bare.to_pyg_data()
    for node_type in data.node_types:
        columns: dict[Any, dict[str, torch.Tensor]] = {frames.numerical: {}, frames.categorical: {}}
        for (owner, name), rows in fetched.items():
            if owner != node_type:
                continue
            known = (features["node", node_type, name].metadata() or {}).get("categories")
            if known is None:
                columns[frames.numerical][name] = rows.float()
            else:
                codes = rows.long()  # first, as codes may be unsigned
                columns[frames.categorical][name] = codes.masked_fill(codes == len(known), -1)
        if not any(columns.values()):
            ids = data[node_type].n_id
            columns[frames.numerical]["__const__"] = torch.ones(len(ids), 1, device=ids.device)
        kept = {kind: own for kind, own in columns.items() if own}
        data[node_type].tf = frames.TensorFrame(
            {kind: torch.cat([*own.values()], 1) for kind, own in kept.items()},
            {kind: [*own] for kind, own in kept.items()},
        )
    return data


def __getattr__(name: str) -> Any:
    if name == "LinkNeighborLoader":
        return load_entry_point("converters", "relbench_loader")
    raise AttributeError(f"module 'graphfeed.interop.relbench' has no attribute {name!r}; it has LinkNeighborLoader")
