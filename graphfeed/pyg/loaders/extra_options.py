"""The arguments of loaders that PyG's don't have."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class ExtraOptions:
    """What a user asks for beyond PyG's arguments; without them, mini-batches are PyG's."""

    time_window: Any = None
    """How far back from its time each seed may look, both ends included: a whole number, or one per seed, by type if
    the seeds are; None: without limit."""
    exclude_seed_edges: Any = False
    """Whether sampled edges that join the two ends of a seed are removed: True, or "reverse" for those of the other
    direction too, or the type of these where they have one of their own."""
    as_edge_index: bool = False
    """Whether `edge_index` is a PyG `EdgeIndex`, with its size and, where the edges are sorted, its order and pointers,
    so that PyG's layers convert nothing."""

    @classmethod
    def take(cls, kwargs: dict[str, Any], sampler: Any, *names: str) -> "ExtraOptions":
        """Return the options of these names, which are removed from the arguments of a loader."""
        found = cls(**{name: kwargs.pop(name) for name in names if name in kwargs})
        if found.time_window is None:
            return found
        if getattr(sampler, "time_attr", None) is None or getattr(sampler, "neighborhoods", None) is None:
            raise ValueError("time_window needs time_attr, the name of the times that are compared; give both")
        # Nodes without a time have always been there, which is before each window.
        if sampler.untimed:
            raise ValueError(
                f"time_window needs times of all types, but {sampler.untimed[0]!r} has no {sampler.time_attr!r}; "
                "give it times, or leave time_window out"
            )
        return found
