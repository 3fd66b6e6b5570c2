"""The mini-batches of several pipelines side by side."""

from collections.abc import Iterator
from typing import Any

from graphfeed.datapipes import Datapipe, length


class ZipBatches(Datapipe[Any]):
    """Gives a tuple of one mini-batch of each pipeline, as long as all of them have another.

    Raises:
        ValueError: There is no pipeline.
    """

    datapipes: tuple[Datapipe, ...]

    one_to_one = True

    def __post_init__(self) -> None:
        if not self.datapipes:
            raise ValueError("datapipes is empty; give at least one pipeline")

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        # As many as the shortest pipeline gives.
        return min(map(length, self.datapipes))
