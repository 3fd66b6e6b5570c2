"""A function of the user's own between sampling and fetching."""

import copy
from collections.abc import Callable
from typing import Any

from graphfeed.datapipes.transform import Transform
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch


class TransformOutput(Transform):
    """Calls a function on each sampler's output, before its features are fetched; its result takes the output's place.

    What the function draws from the global generators of torch, NumPy and Python is seeded for each mini-batch, as for
    every stage from outside of this package (`Transform`).
    """

    function: Callable[[Any], Any]

    foreign = True

    def __call__(self, minibatch: SampledMiniBatch) -> SampledMiniBatch:
        """Return the mini-batch with the function's result."""
        result = copy.copy(minibatch)
        result.output = self.function(minibatch.output)
        return result
