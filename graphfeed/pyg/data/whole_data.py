"""PyG's `Data` and `HeteroData` as a graph with features, and back."""

import warnings
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg.data.data_features import NOT_FETCHED, as_given, read_features
from graphfeed.pyg.data.data_graph import read_graph
from graphfeed.pyg.data.tables import check_data, import_pyg, tables_of
from graphfeed.storage import BasicFeatureStore, FeatureStore, FusedCSCSamplingGraph, TorchBasedFeature
from graphfeed.storage.features import PYG_DIM
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, to_coo, type_name


@checked
def from_pyg(
    data: Any, time_attr: str | None = None, weight_attr: str | None = None
) -> tuple[FusedCSCSamplingGraph, BasicFeatureStore]:
    """Return the graph of a PyG `Data` or `HeteroData`, and all that it has for its nodes and edges as features.

    The id of an edge is its position in `edge_index`. Features share the memory of the data, under PyG's names. Those
    of one dimension, such as `y`, have shape (rows, 1), and their own shape again in `to_pyg_data()` and `to_pyg`. What
    belongs to neither nodes nor edges is left out; where that is the `ptr` of a `Batch`, a warning says so.

    Args:
        time_attr: The name of times of nodes or of edges, which become an attribute of the graph as well.
        weight_attr: The name of weights of edges, which do so too.

    Raises:
        TypeError: `data` is something else, or has a value that is neither a dense tensor nor a `TensorFrame`.
        ValueError: There is no `edge_index`, or no attribute has such a name, or a value requires a gradient.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 2], [1, 1]]), y=torch.tensor([5, 6, 7]))
        >>> graph, features = from_pyg(data)
        >>> graph, features.read("node", None, "y").tolist()
        (FusedCSCSamplingGraph(num_nodes=3, num_edges=2), [[5], [6], [7]])
    """
    check_data(data)
    if any("ptr" in table and "batch" in table for table in tables_of(data).nodes.values()):
        warnings.warn(
            "data is a Batch, whose ptr, num_graphs and rows of graphs are left out; the feature 'batch' has the graph "
            "of each node",
            stacklevel=2,
        )
    found = read_features(data, of_edges=() if weight_attr is None else (weight_attr,))
    features: dict[Any, Any] = {}
    for key in found.store.keys():  # noqa: SIM118
        dim = found.dims.get(key[1:])
        features[key] = found.store[key] if dim is None else TorchBasedFeature(found.store.read(*key), {PYG_DIM: dim})
    return read_graph(data, time_attr, weight_attr).graph, BasicFeatureStore(features)


@checked
def to_pyg(graph: FusedCSCSamplingGraph, features: FeatureStore | None = None) -> Any:
    """Return a graph, with features if they are given, as PyG's `Data`; one with types as `HeteroData`.

    Edges are in the order of their ids. The attributes of the graph, and all rows of the features, become attributes of
    their names; a feature takes the place of an attribute of the same name, also for types without such a feature:
    `from_pyg` gives these the time that always is, or the weight 1. What `from_pyg` read regains its shape.

    Args:
        graph: The graph, on the CPU.

    Raises:
        ImportError: PyG is not installed.
        ValueError: Features of another number of rows than there are nodes or edges, or called as something else is: a
            `Data` has one value of a name, for nodes or for edges.

    Example:
        >>> from graphfeed import from_coo
        >>> to_pyg(from_coo(([0, 2], [1, 1]), 3, edge_attributes={"weight": torch.tensor([0.5, 2.0])}))
        Data(edge_index=[2, 2], weight=[2], num_nodes=3)
    """
    module = import_pyg("torch_geometric.data", "to_pyg()")
    lists = to_coo(graph)
    typed = None not in lists
    data = module.HeteroData() if typed else module.Data()
    sizes: dict[Any, int] = graph.num_nodes if isinstance(graph.num_nodes, dict) else {None: graph.num_nodes}
    stores: dict[tuple[str, str | None], Any] = {}
    counts: dict[tuple[str, str | None], int] = {}
    keys = [] if features is None else list(features.keys())
    given = {(domain, name) for domain, _, name in keys}
    check_names({*given, *(("node", name) for name in graph.node_attributes), *edge_names(graph)}, typed)
    for owner, edges in lists.items():
        own = data[tuple(owner.split(":"))] if owner is not None else data
        own.edge_index = torch.stack([edges.sources, edges.destinations])
        stores["edge", owner], counts["edge", owner] = own, len(edges.sources)
        for domain, name in edge_names(graph):
            # A feature takes the place of the attribute with its name.
            if (domain, name) not in given:
                own[name] = graph.edge_attributes[name][edges.positions]
    first = 0
    for owner, size in sizes.items():
        own = data[owner] if owner is not None else data
        own.num_nodes = size
        stores["node", owner], counts["node", owner] = own, size
        for name, values in graph.node_attributes.items():
            if ("node", name) not in given:
                # The values of all types lie one behind the other.
                own[name] = values[first : first + size]
        first += size
    for domain, owner, name in keys:
        key = domain, owner if owner is None else type_name(owner)
        assert features is not None
        rows = features.read(domain, owner, name)
        if len(rows) != counts.get(key):
            raise ValueError(f"the {domain} feature {name!r} of {owner!r} has {len(rows)} rows, not {counts.get(key)}")
        stores[key][name] = as_given(rows, features.metadata(domain, owner, name).get(PYG_DIM, 0))
    return data


def edge_names(graph: FusedCSCSamplingGraph) -> list[tuple[str, str]]:
    return [("edge", name) for name in graph.edge_attributes if name != ORIGINAL_EDGE_ID]


def check_names(found: set[tuple[str, str]], typed: bool) -> None:
    for domain, name in sorted(found):
        if name in NOT_FETCHED:
            raise ValueError(f"a {domain} feature is called {name!r}, which PyG needs for the graph itself; rename it")
        # A Data has the values of nodes and of edges side by side: one would take the place of the other.
        if not typed and domain == "edge" and ("node", name) in found:
            raise ValueError(f"nodes and edges both have {name!r}, but a Data has one value of a name; rename one")
