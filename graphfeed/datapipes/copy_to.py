"""Move mini-batches to a device."""

import copy
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Process
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.storage.sampled_subgraph import move


class CopyTo(Transform, name="copy_to"):
    """Moves every tensor of a mini-batch to a device, through dicts, lists and tuples.

    Raises:
        RuntimeError: torch doesn't know the device.
    """

    device: torch.device | str
    non_blocking: bool = False
    """Whether a copy from pinned memory returns before it is done."""

    runs_in = Process.MAIN

    def __post_init__(self) -> None:
        super().__post_init__()
        torch.device(self.device)

    def __call__(self, minibatch: Any) -> Any:
        """Return the mini-batch on the device."""
        if isinstance(minibatch, MiniBatch):
            return copy.copy(minibatch).to(self.device, non_blocking=self.non_blocking)
        return move(minibatch, self.device, non_blocking=self.non_blocking)
