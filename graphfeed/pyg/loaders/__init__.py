"""PyG's loaders: each takes the arguments of the PyG loader of its name and makes a pipeline of stages.

Stages of several loaders are in `graphfeed.pyg.stages`, loaders of several machines in `graphfeed.distributed.pyg`.
"""

from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions

__all__ = ["PyGLoader", "TorchOptions"]
