"""Wait for what a mini-batch has begun."""

from typing import Any

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate
from graphfeed.datapipes.transform import Transform


class Waiter(Transform, name="wait"):
    """Calls `wait()` of each mini-batch, which some earlier stage gave it, and passes the mini-batch on.

    Raises:
        TypeError: When it runs: nothing to wait for.
    """

    def __call__(self, minibatch: Any) -> Any:
        """Return the mini-batch when it is ready."""
        wait = getattr(minibatch, "wait", None)
        if not callable(wait):
            raise TypeError(
                f"a {type(minibatch).__name__} came that has no wait(); leave wait() out of the pipeline, "
                "unless a stage before it gives mini-batches something to wait for"
            )
        wait()
        return minibatch

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return what was there before."""
        return before
