"""Traits of stages, by which rules and loaders decide."""

import enum
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from graphfeed.ops.arguments import check_arguments


class Placement(enum.Enum):
    """Where a stage may run: the values of `runs_in`. `DataLoader.explain()` shows where each stage actually runs.

    Give it to the class of a stage, or set it for a single stage by `pipe.transform(work).changed(runs_in=...)`.

    Example:
        >>> from graphfeed import Transform
        >>> class Report(Transform, runs_in=Placement.MAIN):
        ...     def __call__(self, minibatch):
        ...         print(minibatch.key.index)
        ...         return minibatch
    """

    AUTO = "auto"
    """Chosen by the loader: in workers, if all stages before it run there. A stage that reads features runs there only
    if workers can read them equally well, and a copy to another device never does."""
    WORKER = "worker"
    """In workers, even if that is slower. It is an error if a stage before it can't run there."""
    MAIN = "main"
    """In the main process, where UVA and CUDA copies are possible. All stages that follow run there as well."""


@dataclass(frozen=True)
class Traits:
    """The properties of a class of stages by which rules and loaders decide. They are arguments of the class statement.

    A subclass inherits all but `seeded`. A stage that has a field or an attribute `runs_in`, `overlap_fetch` or
    `cooperative` has that trait instead of the one of its class.

    Example:
        >>> from graphfeed import Transform
        >>> class Shuffle(Transform, draws=True, seeded=False): ...
        >>> Shuffle([]).traits.draws
        True
    """

    runs_in: Placement = Placement.AUTO
    """Where the stage runs."""
    draws: bool = False
    """Whether the stage draws random numbers by the mini-batch's key."""
    seeded: bool = True
    """Whether the global generators are seeded by the mini-batch's key while the stage runs. It is not inherited.
    Without workers, a stage that isn't seeded may run up to 32 mini-batches ahead of the loop."""
    reads_graph: bool = False
    """Whether the stage samples from a graph."""
    one_to_one: bool = False
    """Whether the stage yields one mini-batch for each one that it reads, in the same order."""
    keeps_values: bool = False
    """Whether the stage leaves the values of a mini-batch unchanged, like a buffer or a copy to a device."""
    keeps_size: bool = False
    """Whether the output of the stage is about as large as its input, for size estimates."""
    overlap_fetch: bool | None = None
    """Whether the stage, after a copy to a GPU, runs ahead of those that follow, on a separate stream. None: only if it
    reads features."""
    cooperative: bool = False
    """Whether the stage shares its work with the same stage of other ranks."""
    awaits_steps: bool = False
    """Whether the stage reads rows that are trained, and so must not run ahead of the step for the last mini-batch."""
    inserted: bool = False
    """Whether the stage was inserted by a rule of the loader rather than by the user."""
    own_loop: bool = True
    """Whether the stage has its own `__iter__`; other transforms have `__call__` alone. It need not be given."""


NAMES = [field.name for field in fields(Traits)]
OF_ONE_STAGE = ("runs_in", "overlap_fetch", "cooperative")
"""Traits that an attribute of a stage may set."""
FORMER = {"needs_key": "draws", "foreign": "seeded", "passes_on": "keeps_values", "same_size": "keeps_size"} | {
    name: name for name in (*OF_ONE_STAGE, "reads_graph", "one_to_one", "inserted")
}
"""Class attributes that set a trait until 0.3."""


def traits_of_class(cls: type, inherited: Traits, given: Mapping[str, Any]) -> Traits:
    """Return the traits of a class from those of its base and the arguments of its class statement."""
    check_arguments(f"class {cls.__name__}", NAMES, given)
    # An annotated attribute is a field.
    former = [name for name in FORMER if name in vars(cls) and name not in getattr(cls, "__dataclass_fields__", ())]
    if former:
        set_before = {FORMER[name]: vars(cls)[name] for name in former}
        words = ", ".join(f"{name}={value}" for name, value in set_before.items())
        advice = f"write class {cls.__name__}(..., {words}) instead of setting {', '.join(former)} in its body"
        warnings.warn(advice, DeprecationWarning, stacklevel=4)
        given = {**set_before, **given}
    if "__iter__" in vars(cls) and "own_loop" not in given and any("__call__" in vars(base) for base in cls.__mro__):
        # Workers only call `__call__` of a transform.
        given = {"runs_in": Placement.MAIN, "one_to_one": False, "own_loop": True, **given}
        if given["runs_in"] is Placement.WORKER:
            raise TypeError(
                f"runs_in of {cls.__name__} is Placement.WORKER, but workers don't use its __iter__: "
                "implement only __call__, or leave out runs_in"
            )
    return replace(inherited, **{"seeded": True, **given})


def traits_of_stage(stage: Any, of_class: Traits) -> Traits:
    values = vars(stage)
    own = {name: values[name] for name in OF_ONE_STAGE if name in values}
    return with_own(of_class, **own) if own else of_class


@cache
def with_own(of_class: Traits, **own: Any) -> Traits:
    return replace(of_class, **own)
