"""PyG's samplers, to be called or passed to a loader, and PyG's classes that go with them.

The loaders in `graphfeed.pyg.loaders` use them. `NeighborSampler` and `HGTSampler` derive from a PyG class, so their
module is imported at first use.
"""

import importlib
import typing

from graphfeed.pyg.data import tables
from graphfeed.pyg.samplers.neighborhoods import STRATEGIES, Neighborhoods

NEED_PYG = {
    "HGTSampler": "graphfeed.pyg.samplers.neighbor_sampler",
    "HeteroSamplerOutput": "torch_geometric.sampler",
    "NeighborSampler": "graphfeed.pyg.samplers.neighbor_sampler",
    "NumNeighbors": "torch_geometric.sampler",
    "SamplerOutput": "torch_geometric.sampler",
}
"""Module of each name that can't be imported without PyG."""

if typing.TYPE_CHECKING:
    from graphfeed.pyg.samplers.neighbor_sampler import HGTSampler as HGTSampler
    from graphfeed.pyg.samplers.neighbor_sampler import NeighborSampler as NeighborSampler

    HeteroSamplerOutput: typing.Any
    NumNeighbors: typing.Any
    SamplerOutput: typing.Any
else:

    def __getattr__(name: str) -> typing.Any:
        if name not in NEED_PYG:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        tables.import_pyg("torch_geometric.sampler", name)
        return getattr(importlib.import_module(NEED_PYG[name]), name)


__all__ = [
    "NEED_PYG", "STRATEGIES", "HGTSampler", "HeteroSamplerOutput", "NeighborSampler", "Neighborhoods", "NumNeighbors",
    "SamplerOutput",
]  # fmt: skip
