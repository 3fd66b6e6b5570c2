"""PyG's samplers.

Programs call them by themselves, or give them to a loader. Their mini-batches are those of the loaders in
`graphfeed.pyg.loaders`. `NeighborSampler` and `HGTSampler` derive from a class of PyG's, so their modules are imported
when they are first used; what they have in common with loaders that need no PyG is `Neighborhoods`. PyG's own classes
that go with them are here by their names too.
"""

import importlib
import typing

from graphfeed.pyg.data import tables
from graphfeed.pyg.samplers.neighborhoods import STRATEGIES, Neighborhoods

if typing.TYPE_CHECKING:
    from graphfeed.pyg.samplers.hgt_sampler import HGTSampler as HGTSampler
    from graphfeed.pyg.samplers.neighbor_sampler import NeighborSampler as NeighborSampler

    HeteroSamplerOutput: typing.Any
    NumNeighbors: typing.Any
    SamplerOutput: typing.Any
else:
    _MODULES = {"HGTSampler": "hgt_sampler", "NeighborSampler": "neighbor_sampler"}
    _OF_PYG = ("HeteroSamplerOutput", "NumNeighbors", "SamplerOutput")

    def __getattr__(name: str) -> typing.Any:
        if name not in _MODULES and name not in _OF_PYG:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = tables.import_pyg("torch_geometric.sampler", name)
        if name in _MODULES:
            module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return getattr(module, name)


__all__ = [
    "STRATEGIES",
    "HGTSampler",
    "HeteroSamplerOutput",
    "NeighborSampler",
    "Neighborhoods",
    "NumNeighbors",
    "SamplerOutput",
]
