"""The fluent names: `pipe.sample_neighbor(...)` is `NeighborSampler(pipe, ...)`. `fluent.pyi` types them."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Stage = TypeVar("Stage", bound=type)

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


def functional_datapipe(name: str) -> Callable[[Stage], Stage]:
    """Give a stage its fluent name by a decorator; `class MyStage(Transform, name="my_stage")` does the same.

    Raises:
        ValueError: Another stage has the name.
    """

    def decorate(stage: Stage) -> Stage:
        register(name, stage)
        return stage

    return decorate


class Fluent:
    """Finds fluent names among the attributes of a pipeline."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the stage of this name, with this pipeline as its source."""
        if name in FLUENT:
            return partial(FLUENT[name], self)
        raise AttributeError(
            f"{type(self).__name__!r} has no attribute or stage {name!r}; stages are {sorted(FLUENT)}; "
            "transform(function) takes any function, and graphfeed.functional_datapipe names a stage of your own"
        )
