"""Move mini-batches to a device."""

import copy
from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.traits import Placement
from graphfeed.datapipes.transform import Transform, apply_stages
from graphfeed.ops import check_device, is_gpu
from graphfeed.ops.arguments import brief
from graphfeed.storage.memory import to_device


class CopyTo(Transform, name="copy_to", runs_in=Placement.AUTO, one_to_one=True, keeps_values=True, seeded=False):
    """Moves all tensors of a mini-batch to a device, including those in dicts, lists and tuples.

    With workers, the loader pins mini-batches first and copies them on a separate stream, ahead of the loop. A copy
    before the sampler makes sampling and fetching run on the device, which can also read pinned graphs and features. A
    copy to the device that mini-batches are already on has no effect, and runs wherever the stages around it run.

    Args:
        datapipe: Source of the mini-batches.
        device: A torch device, such as "cuda" or "cuda:1".
        non_blocking: Whether a copy from pinned memory to a GPU returns before it is complete. Until then, torch
            doesn't reuse that memory even if you drop it. To use the copy on another stream, make that stream wait for
            the current one.

    Raises:
        ValueError: torch does not know the device.
        RuntimeError: When it runs: the device does not exist.
    """

    device: torch.device | str
    non_blocking: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            torch.device(self.device)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"device must be a torch device, such as 'cuda' or 'cuda:1', but is {brief(self.device)}"
            ) from error

    @property
    def returns_early(self) -> bool:
        """Whether copies may return before they are complete; never for the CPU, where nothing would wait for them."""
        return bool(self.non_blocking) and is_gpu(self.device)

    def __call__(self, minibatch: Any) -> Any:
        if isinstance(minibatch, MiniBatch):
            # `to` modifies its mini-batch in place, and this one may belong to the caller.
            return copy.copy(minibatch).to(self.device, non_blocking=self.returns_early)
        return to_device(minibatch, self.device, non_blocking=self.returns_early)

    def __iter__(self) -> Iterator[Any]:
        # Check the device before the source produces anything.
        check_device("copy_to", self.device)
        for minibatch in self.datapipe:
            yield apply_stages([self], minibatch)
