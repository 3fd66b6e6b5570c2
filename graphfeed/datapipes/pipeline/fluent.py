"""Fluent names: `pipe.sample_neighbor(...)` is `NeighborSampler(pipe, ...)`. `fluent.pyi` has their types."""

import inspect
from collections.abc import Callable
from typing import Any

from graphfeed.ops.arguments import check_arguments, nearest, without_ignored
from graphfeed.ops.process import ENTRY_POINTS, load_entry_point

FLUENT: dict[str, type] = {}
"""Stages by fluent name, filled when their classes are defined."""


def register(name: str, stage: type) -> None:
    """Register a stage by its fluent name, which no other stage may have."""
    path = f"{stage.__module__}:{stage.__qualname__}"
    # If the name's entry point is this stage, it is being imported now, and a lookup would import it again.
    known = find_stage(name) if ENTRY_POINTS["stages"].get(name) != path else None
    if known is not None and (known.__module__, known.__qualname__) != (stage.__module__, stage.__qualname__):
        raise ValueError(
            f"fluent name {name!r} of {stage.__qualname__} is taken by {known.__module__}.{known.__qualname__}; "
            "choose another"
        )
    FLUENT[name] = stage


def find_stage(name: str) -> type | None:
    if name not in FLUENT and name in ENTRY_POINTS["stages"]:
        FLUENT[name] = load_entry_point("stages", name)
    return FLUENT.get(name)


def list_names() -> list[str]:
    # Includes stages that were not imported yet.
    return sorted({*FLUENT, *ENTRY_POINTS["stages"]})


class UnknownStage(AttributeError):
    """An AttributeError that searches for similar names only when it is printed: many probed attributes don't exist."""

    def __str__(self) -> str:
        owner, name = self.args
        hint = nearest(name, list_names()) or (
            f"; stages are {list_names()}; transform(function) takes any function, and class "
            "MyStage(graphfeed.Transform, name='my_stage') adds one, which torch's functional_datapipe does not"
        )
        return f"{owner!r} has no attribute or stage {name!r}{hint}"


class Fluent:
    """Resolves fluent names as attributes of a pipeline."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the constructor of the stage with this name, with this pipeline as its source."""
        stage = find_stage(name)
        if stage is not None:
            return bind(stage, name, self)
        if name in getattr(type(self), "__dataclass_fields__", {}):
            raise AttributeError(
                f"the field {name!r} of {type(self).__name__!r} was not set: call super().__init__("
                "datapipe) in its __init__, or declare fields instead of an __init__"
            )
        raise UnknownStage(type(self).__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *list_names()})


def bind(stage: type, name: str, source: Fluent) -> Callable[..., Any]:
    """Return the constructor of a stage without its first parameter, with the stage's docstring and signature."""

    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs = without_ignored(name, ignored, kwargs)
        if not takes_more:
            check_arguments(name, known, kwargs)
        return stage(source, *args, **kwargs)

    # Only `*args` can accept the source and further arguments.
    signature = inspect.signature(stage)
    parameters = enumerate(signature.parameters.values())
    rest = [parameter for number, parameter in parameters if number > 0 or parameter.kind is parameter.VAR_POSITIONAL]
    vars(make)["__signature__"] = signature.replace(parameters=rest, return_annotation=stage)
    known = [parameter.name for parameter in rest]
    ignored = getattr(stage, "ignored", frozenset()).difference(known)
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in rest)
    make.__name__, make.__qualname__ = name, f"{type(source).__name__}.{name}"
    make.__doc__, make.__module__ = stage.__doc__, stage.__module__
    return make
