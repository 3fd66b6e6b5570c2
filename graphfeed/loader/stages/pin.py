"""Copies in page-locked memory, which a GPU can read while it computes."""

import copy
from typing import Any

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.datapipes.pipeline import Placement
from graphfeed.storage.memory import move


class Pin(Transform):
    """Copies the tensors of a mini-batch to pinned memory; needs CUDA."""

    runs_in = Placement.MAIN
    passes_on = True
    inserted = True

    def __call__(self, minibatch: Any) -> Any:
        if isinstance(minibatch, MiniBatch):
            return copy.copy(minibatch).to("pinned")
        return move(minibatch, "pinned")
