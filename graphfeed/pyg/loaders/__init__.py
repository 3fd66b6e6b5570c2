"""PyG's loaders.

Each takes the arguments of the PyG loader of its name and makes a pipeline of stages. Those of several loaders are
in `graphfeed.pyg.stages`. What loaders share is `PyGLoader` and `TorchOptions`; loaders of several machines use it too,
in `graphfeed.distributed.pyg`.
"""

from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions

__all__ = ["PyGLoader", "TorchOptions"]
