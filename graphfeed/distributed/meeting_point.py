"""The address at which ranks meet that share no process group."""

from datetime import timedelta
from typing import Any, NamedTuple

from torch import distributed


class MeetingPoint(NamedTuple):
    """Where ranks meet that share no process group: rank 0 listens there."""

    address: str
    port: int
    rank: int
    world_size: int

    def open_store(self, seconds: float) -> Any:
        """Listen as rank 0, or connect to it, and return the store that the ranks share.

        Raises:
            OSError: Rank 0 can't listen there.
            TimeoutError: It did not listen within so many seconds.
        """
        place, wait = f"{self.address}:{self.port}", timedelta(seconds=seconds)
        try:
            return distributed.TCPStore(  # type: ignore[attr-defined]  # torch documents it, and does not list it
                self.address, self.port, self.world_size, self.rank == 0, timeout=wait, wait_for_workers=False
            )
        except RuntimeError as error:
            if self.rank == 0:
                raise OSError(f"rank 0 can't listen at {place}: {error}; choose another port") from error
            raise TimeoutError(f"rank 0 did not listen at {place} within {seconds:g} s") from error
