"""Share the mini-batches of a source out by index."""

from collections.abc import Iterator
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, Shardable


class Sharder(Datapipe):
    """Marks a source whose mini-batches are made where they are needed, each from its index alone.

    Which worker is given which index makes no difference to the mini-batch.
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
        """Run the source here."""
        return iter(self.datapipe)

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return len(self.source)
