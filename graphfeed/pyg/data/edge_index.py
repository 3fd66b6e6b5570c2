"""The edges of a mini-batch as PyG's `EdgeIndex`."""

from typing import Any

import torch

from graphfeed.pyg.data.tables import import_pyg


def to_edge_index(index: torch.Tensor, size: tuple[int, int]) -> Any:
    """Return edges, shape (2, E), as an `EdgeIndex` that shares their memory."""
    # A sampler's edges are sorted by destination. Sorted ones know their order and, filled in below, their pointers.
    orders = {"col": index[1], "row": index[0]}
    order = next((name for name, keys in orders.items() if not bool((keys[1:] < keys[:-1]).any())), None)
    made = import_pyg("torch_geometric", "as_edge_index").EdgeIndex(index, sparse_size=size, sort_order=order)
    return made if order is None else made.fill_cache_(no_transpose=True)
