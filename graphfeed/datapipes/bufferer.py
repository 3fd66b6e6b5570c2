"""A stage that reads mini-batches ahead."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.datapipes.pipeline.traverse import check_source
from graphfeed.ops.arguments import brief


class Bufferer(Datapipe, name="buffer", one_to_one=True, keeps_values=True, seeded=False):
    """Reads mini-batches ahead of the one that it yields, so that asynchronous work has time to finish.

    It starts no threads, unlike `prefetch` and the loader's workers.

    Args:
        datapipe: Source of the mini-batches.
        buffer_size: Number of mini-batches to read ahead.

    Raises:
        ValueError: The buffer size is below 1.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> [batch.seeds.tolist() for batch in ItemSampler(ItemSet(3, names="seeds"), 1).buffer(2)]
        [[0], [1], [2]]
    """

    datapipe: Datapipe[Any]
    buffer_size: int = 1

    def __post_init__(self) -> None:
        check_source(self)
        size: object = self.buffer_size
        if not isinstance(size, int) or not 0 < size < 2**63:
            raise ValueError(f"'buffer_size' is required to be a positive integer, but is {brief(size)}")

    def __iter__(self) -> Iterator[Any]:
        held: deque[Any] = deque()
        for minibatch in self.datapipe:
            held.append(minibatch)
            if len(held) > self.buffer_size:
                yield held.popleft()
        yield from held

    def __len__(self) -> int:
        return length(self.datapipe)
