"""The nodes of some parts of a graph, as those of a mini-batch."""

import copy
from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform


class TakeParts(Transform):
    """Makes the nodes of the parts that the seeds number the input nodes of a mini-batch, one part after the other.

    The seeds are dropped. A part is a range of ids.
    """

    bounds: tuple[int, ...]
    """The first node of each part, and the number of nodes."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        """Return the mini-batch with input nodes."""
        parts: Any = minibatch.seeds
        nodes = torch.cat([torch.arange(self.bounds[part], self.bounds[part + 1]) for part in parts.tolist()])
        result = copy.copy(minibatch)
        result.seeds, result.input_nodes = None, nodes
        return result
