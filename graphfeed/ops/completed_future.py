"""The result of an operation that is complete already."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any


@dataclass(frozen=True)
class CompletedFuture:
    """The return value of a call with `async_op=True`, with a result that is complete already.

    Example:
        >>> CompletedFuture(5).wait()
        5
    """

    result: Any

    def wait(self) -> Any:
        """Return the result; may be called repeatedly."""
        return self.result


def check_one_rank(rank: object, world_size: object) -> None:
    """Raise unless there is one rank, because ids are not distributed among ranks here."""
    # `int` comes first: looking into the other one is a call of Python's.
    of_numbers = isinstance(rank, (int, Integral)) and isinstance(world_size, (int, Integral))
    if not of_numbers or bool in (type(rank), type(world_size)) or (rank, world_size) != (0, 1):
        raise ValueError(
            f"rank and world_size must be 0 and 1, but are {rank} and {world_size}; ids are not distributed among "
            "ranks here, so each rank compacts its own"
        )
