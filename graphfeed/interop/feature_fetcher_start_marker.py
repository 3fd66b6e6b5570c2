"""Mark where features are about to be fetched."""

from typing import Any

from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate
from graphfeed.datapipes.transform import Transform


class FeatureFetcherStartMarker(Transform, name="mark_feature_fetcher_start"):
    """Passes mini-batches on as they are.

    The loader cuts by where stages may run and needs no mark; a pipeline that has one runs the same.
    """

    def __call__(self, minibatch: Any) -> Any:
        """Return the mini-batch."""
        return minibatch

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return what was there before."""
        return before
