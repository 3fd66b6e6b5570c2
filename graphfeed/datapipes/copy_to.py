"""Move mini-batches to a device."""

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Placement
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform, call
from graphfeed.ops.backend import check_device, is_gpu
from graphfeed.storage.memory.tensor_tree import move


class CopyTo(Transform, name="copy_to"):
    """Moves every tensor of a mini-batch to a device, through dicts, lists and tuples.

    With workers, the loader makes it a copy from pinned memory, on a stream of its own, ahead of the loop. Before the
    sampler, it makes sampling and fetching run on the device, where they read pinned graphs and features too.

    Raises:
        RuntimeError: torch doesn't know the device; when it runs: the device is not there.
    """

    device: torch.device | str
    non_blocking: bool = False
    """Whether a copy to a GPU from pinned memory returns before it is done. What is copied from is then kept until it
    is; who uses the copy on another stream than the current one waits for this one."""

    runs_in = Placement.MAIN
    one_to_one = True
    passes_on = True

    def __post_init__(self) -> None:
        super().__post_init__()
        torch.device(self.device)

    @property
    def returns_early(self) -> bool:
        """Whether copies may be returned before they are done; to the CPU they never are, for nothing waits there."""
        return self.non_blocking and is_gpu(self.device)

    def __call__(self, minibatch: Any) -> Any:
        """Return the mini-batch on the device."""
        if isinstance(minibatch, MiniBatch):
            return copy.copy(minibatch).to(self.device, non_blocking=self.returns_early)
        return move(minibatch, self.device, non_blocking=self.returns_early)

    def __iter__(self) -> Iterator[Any]:
        """Run the pipeline here; keep what is copied from until its copy is done."""
        check_device("copy_to", self.device)
        if not self.returns_early:
            for minibatch in self.datapipe:
                yield call(self, minibatch)
            return
        under_way: deque[tuple[torch.cuda.Event, Any]] = deque()
        try:
            for minibatch in self.datapipe:
                result = call(self, minibatch)
                under_way.append((torch.cuda.current_stream(self.device).record_event(), minibatch))
                while under_way and under_way[0][0].query():  # type: ignore[no-untyped-call]
                    under_way.popleft()
                yield result
        finally:
            for event, _ in under_way:
                event.synchronize()
