"""PyG's samplers.

Programs call them by themselves, or give them to a loader. Their mini-batches are those of the loaders in
`graphfeed.pyg.loaders`. `NeighborSampler` and `HGTSampler` derive from a class of PyG's, so their modules are imported
when they are first used; what they have in common with loaders that need no PyG is `Neighborhoods`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphfeed.pyg.samplers.neighborhoods import STRATEGIES, Neighborhoods

if TYPE_CHECKING:
    from graphfeed.pyg.samplers.hgt_sampler import HGTSampler as HGTSampler
    from graphfeed.pyg.samplers.neighbor_sampler import NeighborSampler as NeighborSampler
else:
    _MODULES = {"HGTSampler": "hgt_sampler", "NeighborSampler": "neighbor_sampler"}

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["STRATEGIES", "HGTSampler", "NeighborSampler", "Neighborhoods"]
