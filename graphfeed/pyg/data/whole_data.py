"""Conversion of PyG's `Data` and `HeteroData` to a graph with features, and back."""

import warnings
from typing import Any

import torch

from graphfeed.ops.arguments import checked
from graphfeed.pyg.data.features_of_data import NOT_FETCHED, as_given, features_of_data
from graphfeed.pyg.data.graph_of_data import graph_of_data
from graphfeed.pyg.data.tables import check_data, import_pyg, tables_of
from graphfeed.storage import BasicFeatureStore, FeatureStore, FusedCSCSamplingGraph, TorchBasedFeature
from graphfeed.storage.features import PYG_DIM
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, to_coo, type_name


@checked
def from_pyg(
    data: Any, time_attr: str | None = None, weight_attr: str | None = None
) -> tuple[FusedCSCSamplingGraph, BasicFeatureStore]:
    """Return the graph of a PyG `Data` or `HeteroData`, and all attributes of its nodes and edges as features.

    The id of an edge is its position in `edge_index`. Features share the memory of the data and keep PyG's names.
    One-dimensional ones, such as `y`, have shape (rows, 1); `to_pyg_data()` and `to_pyg` restore their shape. Other
    attributes of the data are left out; if the `ptr` of a `Batch` is among them, a warning is issued.

    Args:
        time_attr: Name of the times of nodes or of edges, which also become an attribute of the graph.
        weight_attr: Name of the edge weights, which also become an attribute of the graph.

    Raises:
        TypeError: `data` has another type, or has a value that is neither a dense tensor nor a `TensorFrame`.
        ValueError: There is no `edge_index`, no attribute has the given name, or a value requires a gradient.

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
    found = features_of_data(data, of_edges=() if weight_attr is None else (weight_attr,))
    features: dict[Any, Any] = {}
    for key in found.store.keys():  # noqa: SIM118
        dim = found.dims.get(key[1:])
        features[key] = found.store[key] if dim is None else TorchBasedFeature(found.store.read(*key), {PYG_DIM: dim})
    return graph_of_data(data, time_attr, weight_attr).graph, BasicFeatureStore(features)


@checked
def to_pyg(graph: FusedCSCSamplingGraph, features: FeatureStore | None = None) -> Any:
    """Return a graph, with features if they are given, as a PyG `Data`, or as a `HeteroData` if it has types.

    Edges are in the order of their ids. The attributes of the graph, and the rows of the features for its nodes and
    edges, become attributes of the same names. Edges that the graph lacks, such as those held out from training, are
    left out. A feature replaces a graph attribute of the same name for all types: for types without that feature, the
    graph attribute has only the values that `from_pyg` filled in. Features from `from_pyg` regain their shape.

    Args:
        graph: The graph, on the CPU.

    Raises:
        ImportError: PyG is not installed.
        ValueError: A feature has the wrong number of rows, or the name of another attribute: a `Data` has one value
            per name, for nodes or for edges.

    Example:
        >>> from graphfeed import from_coo
        >>> to_pyg(from_coo(([0, 2], [1, 1]), 3, edge_attributes={"weight": torch.tensor([0.5, 2.0])}))
        Data(edge_index=[2, 2], weight=[2], num_nodes=3)
    """
    module = import_pyg("torch_geometric.data", "to_pyg()")
    lists, ids = to_coo(graph), graph.edge_attributes.get(ORIGINAL_EDGE_ID)
    typed = None not in lists
    data = module.HeteroData() if typed else module.Data()
    sizes: dict[Any, int] = graph.num_nodes if isinstance(graph.num_nodes, dict) else {None: graph.num_nodes}
    stores: dict[tuple[str, str | None], Any] = {}
    counts: dict[tuple[str, str | None], int] = {}
    keys = [] if features is None else list(features.keys())
    given = {(domain, name) for domain, _, name in keys}
    check_attribute_names({*given, *(("node", name) for name in graph.node_attributes), *edge_names(graph)}, typed)
    for owner, edges in lists.items():
        own = data[tuple(owner.split(":"))] if owner is not None else data
        own.edge_index = torch.stack([edges.sources, edges.destinations])
        stores["edge", owner], counts["edge", owner] = own, len(edges.sources)
        for domain, name in edge_names(graph):
            # A feature replaces the attribute with its name.
            if (domain, name) not in given:
                own[name] = graph.edge_attributes[name][edges.positions]
    first = 0
    for owner, size in sizes.items():
        own = data[owner] if owner is not None else data
        own.num_nodes = size
        stores["node", owner], counts["node", owner] = own, size
        for name, values in graph.node_attributes.items():
            if ("node", name) not in given:
                # The values of all types are stored contiguously.
                own[name] = values[first : first + size]
        first += size
    for domain, owner, name in keys:
        key = domain, owner if owner is None else type_name(owner)
        assert features is not None
        # A graph may lack edges that have features, such as those held out from training.
        some = ids[lists[key[1]].positions] if domain == "edge" and ids is not None and key in counts else None
        rows = read_rows_of(features, (domain, owner, name), counts.get(key), some)
        stores[key][name] = as_given(rows, features.metadata(domain, owner, name).get(PYG_DIM, 0))
    return data


def read_rows_of(
    features: FeatureStore, key: tuple[str, Any, str], count: int | None, ids: torch.Tensor | None
) -> torch.Tensor:
    """Return the rows of a feature for all nodes or edges of a type; `ids` are those of the edges in the graph."""
    rows = features.read(*key)
    if len(rows) == count:
        return rows
    if ids is None or (len(ids) and int(ids.max()) >= len(rows)):
        domain, owner, name = key
        raise ValueError(f"the {domain} feature {name!r} of {owner!r} has {len(rows)} rows, not {count}")
    return rows[ids.long()]


def edge_names(graph: FusedCSCSamplingGraph) -> list[tuple[str, str]]:
    return [("edge", name) for name in graph.edge_attributes if name != ORIGINAL_EDGE_ID]


def check_attribute_names(found: set[tuple[str, str]], typed: bool) -> None:
    for domain, name in sorted(found):
        if name in NOT_FETCHED:
            raise ValueError(f"a {domain} feature is called {name!r}, which PyG needs for the graph itself; rename it")
        # A Data has the values of nodes and of edges in one namespace: one would replace the other.
        if not typed and domain == "edge" and ("node", name) in found:
            raise ValueError(f"nodes and edges both have {name!r}, but a Data has one value per name; rename one")
