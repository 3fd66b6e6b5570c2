"""What a user asked of the loader, as far as planning needs it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoaderOptions:
    """The input of every rule."""

    num_workers: int = 0
    """0 runs everything where the loader is iterated."""
    in_threads: bool = True
    """Whether workers share this process's memory."""
    prefetch_factor: int = 2
    """How many mini-batches are in flight for each worker."""
    timeout_seconds: float = 600.0
