"""Conversion of PyG's data, stores and input nodes to a graph, features and items, and back.

Only `tables` depends on how PyG's data store their values. Graphs and features themselves are in `graphfeed.storage`.
"""

from graphfeed.pyg.data.features_of_data import FLAT, DataFeatures, dim_of, domain_of, features_of_data
from graphfeed.pyg.data.graph_of_data import as_time_column, fill_missing, graph_of_data, make_graph
from graphfeed.pyg.data.read_input import (
    InputEdges,
    InputNodes,
    NegativeSampling,
    read_input_edges,
    read_input_nodes,
    split_edge_type,
)
from graphfeed.pyg.data.store_data import StoreEdges, check_index_tensor
from graphfeed.pyg.data.tables import Tables, import_pyg, is_data, tables_of

__all__ = [
    "FLAT", "DataFeatures", "InputEdges", "InputNodes", "NegativeSampling", "StoreEdges", "Tables", "as_time_column",
    "check_index_tensor", "dim_of", "domain_of", "features_of_data", "fill_missing", "graph_of_data", "import_pyg",
    "is_data", "make_graph", "read_input_edges", "read_input_nodes", "split_edge_type", "tables_of",
]  # fmt: skip
