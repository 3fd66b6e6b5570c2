"""Any iterable of mini-batches as a source."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.iteration import torch_shard
from graphfeed.datapipes.sources.node_record import NodeRecord, is_node
from graphfeed.ops import Key
from graphfeed.ops.arguments import brief, check_position


class IterableSource(Datapipe, init=False, seeded=False):
    """Wraps an iterable; stages do this automatically. Keys count mini-batches, and resuming reads from the start.

    Each epoch of a `torchdata.nodes.BaseNode` begins with `node.reset()`. The node's state is part of the loader's, so
    resuming continues where the node was.

    Args:
        iterable: Mini-batches. Each epoch iterates it once.
        seed: Random seed of all later draws, unless the DataLoader has one. None means 0 without a loader.
        epoch: The epoch, which determines the order and the draws. A DataLoader sets it.
        start: Index of the first mini-batch. A DataLoader sets it.

    Example:
        >>> import graphfeed as gf
        >>> [minibatch.key.index for minibatch in gf.IterableSource([gf.MiniBatch(), gf.MiniBatch()])]
        [0, 1]
    """

    iterable: Iterable[Any]
    seed: int | None = None
    epoch: int = 0
    start: int = 0
    record: NodeRecord | None = field(default=None, repr=False)

    if TYPE_CHECKING:

        def __new__(  # type: ignore[misc]
            cls,
            iterable: Iterable[Any],
            seed: int | None = ...,
            epoch: int = ...,
            start: int = ...,
        ) -> Datapipe:
            """Type the source as a pipeline, so that `pipe = pipe.sample_neighbor(...)` is valid."""

    def __post_init__(self) -> None:
        if not hasattr(self.iterable, "__iter__"):
            raise TypeError(f"iterable must be an iterable of mini-batches, but is {brief(self.iterable)}")
        if not isinstance(self.record, NodeRecord | None):
            raise TypeError(f"record must be None, but is {brief(self.record)}; a loader sets it")
        check_position(0 if self.seed is None else self.seed, self.epoch, self.start)

    def __iter__(self) -> Iterator[Any]:
        worker, num_workers = torch_shard()
        for index, minibatch in self.numbered():
            if index % num_workers != worker:
                continue
            if isinstance(minibatch, MiniBatch):
                # The iterable may yield the same object in another pass, with another key.
                minibatch = copy.copy(minibatch)
                minibatch.key = Key(self.seed or 0, self.epoch, index)
            yield minibatch

    def numbered(self) -> Iterator[tuple[int, Any]]:
        """Yield the mini-batches and their indexes, starting at `start`."""
        if is_node(self.iterable):
            return (self.record or NodeRecord()).read(self.iterable, self.start)
        return ((index, minibatch) for index, minibatch in enumerate(self.iterable) if index >= self.start)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def keyed(self, seed: int, epoch: int, start: int) -> "IterableSource":
        """Return the source for another random seed and epoch, starting at mini-batch `start`."""
        return self.changed(seed=seed, epoch=epoch, start=start)
