"""The fluent names: `pipe.sample_neighbor(...)` is `NeighborSampler(pipe, ...)`. `fluent.pyi` types them."""

from collections.abc import Callable
from functools import partial
from typing import Any

FLUENT: dict[str, type] = {}
"""Stage by fluent name, filled by the stages' class statements."""


def register(name: str, stage: type) -> None:
    """Give a stage its fluent name.

    Raises:
        ValueError: Another stage has it.
    """
    known = FLUENT.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (
        stage.__module__,
        stage.__qualname__,
    ):
        raise ValueError(
            f"fluent name {name!r} of {stage.__qualname__} is taken by {known.__module__}.{known.__qualname__}; "
            "choose another"
        )
    FLUENT[name] = stage


class Fluent:
    """Finds fluent names among the attributes of a pipeline."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the stage of this name, with this pipeline as its source."""
        if name in FLUENT:
            return partial(FLUENT[name], self)
        raise AttributeError(f"{type(self).__name__!r} has no attribute or stage {name!r}; stages are {sorted(FLUENT)}")
