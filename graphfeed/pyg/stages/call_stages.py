"""A pipeline for one mini-batch that is not one of an epoch."""

from itertools import islice
from typing import Any

from graphfeed.datapipes import Datapipe, Transform, call
from graphfeed.datapipes.pipeline import traverse


def call_stages(pipe: Datapipe, minibatch: Any) -> Any:
    """Return what the stages behind a pipeline's source make of a mini-batch.

    Nothing is iterated, so the workers of a loader of torch's do not share the one mini-batch among them.
    """
    for stage in islice(traverse(pipe), 1, None):
        assert isinstance(stage, Transform)
        minibatch = call(stage, minibatch)
    return minibatch
