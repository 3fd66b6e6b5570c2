"""Share the mini-batches of a source by index."""

from collections.abc import Iterator
from typing import Any

from graphfeed.datapipes import Datapipe, Shardable


class Sharder(Datapipe):
    """Marks a source whose mini-batches workers make, each from its index alone.

    A mini-batch does not depend on which worker gets its index.
    """

    datapipe: Datapipe

    one_to_one = True
    inserted = True

    @property
    def source(self) -> Shardable:
        """The source."""
        assert isinstance(self.datapipe, Shardable)
        return self.datapipe

    def __iter__(self) -> Iterator[Any]:
        return iter(self.datapipe)

    def __len__(self) -> int:
        return len(self.source)
