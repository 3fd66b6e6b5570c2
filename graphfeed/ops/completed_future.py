"""A result for those who wait for it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CompletedFuture:
    """What a call with `async_op=True` returns: a result that is there already.

    Example:
        >>> CompletedFuture(5).wait()
        5
    """

    result: Any

    def wait(self) -> Any:
        """Return the result; any number of times."""
        return self.result


def check_one_rank(rank: int, world_size: int) -> None:
    """Raise unless there is one rank, for ids are not shared out among ranks here."""
    if (rank, world_size) != (0, 1):
        raise ValueError(
            f"rank and world_size must be 0 and 1, but are {rank} and {world_size}; ids are not shared out among ranks "
            "here, so each compacts its own"
        )
