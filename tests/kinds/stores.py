"""PyG's data in a pair of its stores."""

from typing import Any

import torch

from graphfeed.pyg.data import import_pyg, tables_of
from tests.kinds.neighborhood import heterogeneous, homogeneous


def sorted_data(typed: bool, layout: str) -> Any:
    """Return data that a pair of stores can represent, with the edges in the order of a layout."""
    data = heterogeneous() if typed else homogeneous()
    if typed:
        for kind in data.node_types:
            data[kind].num_nodes = data[kind].num_nodes
    else:
        del data.name
        data.num_nodes = data.num_nodes
    for store in data.edge_stores:
        if layout != "coo":
            order = store.edge_index[int(layout == "csc")].argsort(stable=True)
            names = [name for name in store.keys() if name == "edge_index" or store.is_edge_attr(name)]  # noqa: SIM118
            for name in names:
                store[name] = store[name][..., order] if name == "edge_index" else store[name][order]
    return data


def counting_store() -> Any:
    """Return a feature store that records how many rows each read requests; None stands for all."""
    base: Any = import_pyg("torch_geometric.testing", "tests").MyFeatureStore

    class CountingStore(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[Any] = []

        def _get_tensor(self, attr: Any) -> Any:
            self.asked.append((attr.attr_name, None if attr.index is None else len(attr.index)))
            return super()._get_tensor(attr)

        def _get_tensor_size(self, attr: Any) -> Any:
            return self.store[self.key(attr)][1].shape

    return CountingStore()


def in_stores(data: Any, layout: str, edge_group: Any = (None, None)) -> tuple[Any, Any]:
    """Return a pair of stores with the features and edges of data, with the edges in a layout.

    Features of edges without a type are in the given group.
    """
    features, graph = counting_store(), import_pyg("torch_geometric.testing", "tests").MyGraphStore()
    nodes, edges = tables_of(data).nodes, tables_of(data).edges
    for kind, store in nodes.items():
        for name in [name for name in store.keys() if store.is_node_attr(name)]:  # noqa: SIM118
            features.put_tensor(store[name], group_name=kind, attr_name=name, index=None)
    for edge_type, store in edges.items():
        for name in [name for name in store.keys() if name != "edge_index" and store.is_edge_attr(name)]:  # noqa: SIM118
            features.put_tensor(store[name], group_name=edge_type or edge_group, attr_name=name, index=None)
        size = [nodes[end].num_nodes for end in ((None, None) if edge_type is None else edge_type[::2])]
        pair = list(store.edge_index)
        if layout != "coo":
            row = int(layout == "csc")
            counts = torch.bincount(pair[row], minlength=size[row])
            pair[row] = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        graph.put_edge_index(tuple(pair), edge_type=edge_type, layout=layout, size=tuple(size))
    return features, graph
