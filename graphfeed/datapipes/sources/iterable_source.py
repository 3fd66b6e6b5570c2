"""Any iterable of mini-batches as a source."""

import copy
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.iteration import torch_shard
from graphfeed.ops import Key
from graphfeed.ops.arguments import brief, check_position


class IterableSource(Datapipe, init=False):
    """Wraps an iterable, as stages do by themselves; mini-batches get keys by position, and resuming reads anew."""

    iterable: Iterable[Any]
    seed: int | None = None
    epoch: int = 0
    start: int = 0

    if TYPE_CHECKING:

        def __new__(  # type: ignore[misc]
            cls,
            iterable: Iterable[Any],
            seed: int | None = ...,
            epoch: int = ...,
            start: int = ...,
        ) -> Datapipe:
            """Return a pipeline, so that `pipe = pipe.sample_neighbor(...)` may take its place."""

    def __post_init__(self) -> None:
        if not hasattr(self.iterable, "__iter__"):
            raise TypeError(f"iterable must be an iterable of mini-batches, but is {brief(self.iterable)}")
        check_position(0 if self.seed is None else self.seed, self.epoch, self.start)

    def __iter__(self) -> Iterator[Any]:
        worker, num_workers = torch_shard()
        for index, minibatch in enumerate(self.iterable):
            if index < self.start or index % num_workers != worker:
                continue
            if isinstance(minibatch, MiniBatch):
                # The iterable may give the same object in another pass, with another key.
                minibatch = copy.copy(minibatch)
                minibatch.key = Key(self.seed or 0, self.epoch, index)
            yield minibatch

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def keyed(self, seed: int, epoch: int, start: int) -> "IterableSource":
        """Return the same source for a seed and an epoch, beginning with mini-batch `start`."""
        return self.changed(seed=seed, epoch=epoch, start=start)
