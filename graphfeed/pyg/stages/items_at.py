"""Items at the positions that another pipeline gives."""

from collections.abc import Callable
from typing import Any

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.storage import HeteroItemSet, ItemSet


class ItemsAt(Transform):
    """Replaces seeds that are positions of items by those items.

    So several pipelines read the order of an epoch from one source.
    """

    item_set: ItemSet | HeteroItemSet
    minibatcher: Callable[[Any, Any], Any]
    """Makes a mini-batch from rows and names."""

    def __call__(self, minibatch: MiniBatch) -> Any:
        positions: Any = minibatch.seeds
        return self.minibatcher(self.item_set[positions], self.item_set.names)
