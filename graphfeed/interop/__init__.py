"""Other libraries: names only for programs of GraphBolt's, and graphs of DGL, GraphLearn and OGB.

What the core takes from here when it meets another library's objects is an entry point (`graphfeed.ops.process`). What
is useful without the other library belongs elsewhere, and PyG has a room of its own, `graphfeed.pyg`.
"""

import importlib
import types

from graphfeed.interop.graphlearn import WholeGraph, read_graphlearn

__all__ = ["WholeGraph", "read_graphlearn"]


def __getattr__(name: str) -> types.ModuleType:
    if name in ("dgl", "graphbolt", "graphlearn", "ogb"):
        return importlib.import_module(f"graphfeed.interop.{name}")
    raise AttributeError(f"module 'graphfeed.interop' has no attribute {name!r}")
