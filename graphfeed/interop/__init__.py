"""Support for other libraries: GraphBolt's names, and graphs of DGL, GraphLearn, OGB, RelBench and TGM.

The core finds these functions through entry points (`graphfeed.ops.process`) when it gets objects of another library.
Code that is useful without the other library belongs elsewhere, and PyG has its own package, `graphfeed.pyg`.
"""

import importlib
import types

from graphfeed.interop.graphlearn import WholeGraph, read_graphlearn

__all__ = ["WholeGraph", "read_graphlearn"]


def __getattr__(name: str) -> types.ModuleType:
    if name in ("dgl", "graphbolt", "graphlearn", "ogb", "relbench", "tgm"):
        return importlib.import_module(f"graphfeed.interop.{name}")
    raise AttributeError(f"module 'graphfeed.interop' has no attribute {name!r}")
