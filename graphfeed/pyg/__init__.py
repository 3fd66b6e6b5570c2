"""PyG: mini-batches and sampled subgraphs as its data objects.

This room is optional, and needs `torch_geometric` only when it is used. Nothing here samples or fetches; that is done
by the same stages as for everyone else, in `graphfeed.datapipes`.
"""

from graphfeed.pyg.layer_data import PyGLayerData, PyGLayerHeteroData
from graphfeed.pyg.to_pyg_data import ToPyGData

__all__ = ["PyGLayerData", "PyGLayerHeteroData", "ToPyGData"]
