"""How a pipeline is walked and rewritten: a stage never changes, so what changes it returns a copy."""

from collections.abc import Callable
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


class Rewritable:
    """A stage among the stages that it reads from, which are its fields, or in lists or tuples that are."""

    @property
    def inputs(self) -> "tuple[Datapipe, ...]":
        """The stages that this one reads from."""
        found: list[Any] = []
        # Attributes rather than fields: a stage with its own `__init__` has none of these.
        for value in vars(self).values():
            found += value if isinstance(value, (list, tuple)) else [value]
        return tuple(part for part in found if isinstance(part, Rewritable))  # type: ignore[misc]

    def changed(self, **fields: Any) -> Self:
        """Return a copy with other values in some fields."""
        clone = object.__new__(type(self))
        for name, value in vars(self).items():
            # A stage may hold its own method, as in super().__init__(datapipe, self.work); the copy has its own.
            own_method = isinstance(value, MethodType) and value.__self__ is self
            # What was computed from the old fields is left behind.
            if not isinstance(getattr(type(self), name, None), cached_property):
                clone.__dict__[name] = MethodType(value.__func__, clone) if own_method else value
        clone.__dict__.update(fields)
        return clone

    def with_inputs(self, swap: "Callable[[Datapipe], Datapipe]") -> Self:
        """Return the stage with its inputs swapped, or this very object if each stays as it is."""
        fields: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Rewritable):
                fields[name] = swap(value)  # type: ignore[arg-type]
            elif isinstance(value, (list, tuple)) and any(isinstance(part, Rewritable) for part in value):
                parts: Any = value
                fields[name] = type(value)(swap(part) if isinstance(part, Rewritable) else part for part in parts)  # type: ignore[arg-type]
        changed = self.changed(**fields)
        # An object that stays keeps what it has computed.
        same = all(new is old for new, old in zip(changed.inputs, self.inputs, strict=True))
        return self if same else changed

    def rewrite(self, rule: "Callable[[Datapipe], Datapipe]") -> "Datapipe":
        """Apply a rule to each stage, inputs first; a stage that two read from stays shared.

        Returns:
            A new pipeline, or this very object if the rule returned each stage as it was.
        """
        done: dict[int, Datapipe] = {}

        def visit(stage: "Datapipe") -> "Datapipe":
            if id(stage) not in done:
                done[id(stage)] = rule(stage.with_inputs(visit))
            return done[id(stage)]

        return visit(self)  # type: ignore[arg-type]
