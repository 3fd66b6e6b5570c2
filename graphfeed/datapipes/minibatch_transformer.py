"""A stage that calls a function on each mini-batch."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate
from graphfeed.datapipes.pipeline.traits import Traits
from graphfeed.datapipes.transform import Transform
from graphfeed.ops.arguments import kind_of


class MiniBatchTransformer(Transform, name="transform", seeded=False):
    """Calls a function on each mini-batch, which returns a MiniBatch. Without a function, mini-batches pass unchanged.

    A subclass may pass one of its methods to `super().__init__(datapipe, self.work)`. To run in worker processes, the
    function must be picklable: a module-level function, not a lambda.

    Args:
        datapipe: Source of the mini-batches.
        transformer: Function from a `MiniBatch` to a `MiniBatch`. None passes mini-batches on unchanged.
    """

    transformer: Callable[[MiniBatch], MiniBatch] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transformer is not None and not callable(self.transformer):
            raise TypeError(f"transformer must be a function of a mini-batch, but is {kind_of(self.transformer)}")

    @cached_property
    def traits(self) -> Traits:
        """The traits of the class. If there is a function, it may draw from the global random generators."""
        own = super().traits
        return replace(own, seeded=own.seeded or self.transformer is not None)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if self.transformer is None:
            return minibatch
        result = self.transformer(minibatch)
        if not isinstance(result, MiniBatch):
            raise TypeError(
                f"The transformer output should be an instance of MiniBatch, but is {kind_of(result)}; "
                "return the mini-batch. To return something else, derive a stage from graphfeed.Transform instead, "
                "as to_pyg_data() does"
            )
        return result

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate of the input, or None (unknown) if there is a function."""
        return before if self.transformer is None else None
