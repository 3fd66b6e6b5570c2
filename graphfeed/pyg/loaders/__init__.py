"""PyG's loaders: each accepts the arguments of the PyG loader of the same name and builds a pipeline of stages.

Files have the names of PyG's: `neighbor_loader` has `NeighborLoader`, and `link_neighbor_loader` `LinkNeighborLoader`.

Shared stages are in `graphfeed.pyg.stages`, distributed loaders in `graphfeed.distributed.pyg`.
"""

from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions

__all__ = ["PyGLoader", "TorchOptions"]
