"""Copies in page-locked memory, which a GPU can read while it computes."""

import copy
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.placement import Placement
from graphfeed.datapipes.transform import Transform
from graphfeed.storage.memory.tensor_tree import move


class Pin(Transform):
    """Copies the tensors of a mini-batch to pinned memory; needs CUDA."""

    runs_in = Placement.MAIN
    inserted = True

    def __call__(self, minibatch: Any) -> Any:
        """Return the mini-batch in pinned memory."""
        if isinstance(minibatch, MiniBatch):
            return copy.copy(minibatch).to("pinned")
        return move(minibatch, "pinned")
