"""The former name of typed item sets."""

import warnings
from collections.abc import Mapping

from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet


class ItemSetDict(HeteroItemSet):
    """Deprecated: the same as `HeteroItemSet`, and accepted wherever that is.

    Warns:
        DeprecationWarning: Always.
    """

    def __init__(self, itemsets: Mapping[str, ItemSet]) -> None:
        warnings.warn("ItemSetDict is deprecated; use HeteroItemSet", DeprecationWarning, stacklevel=2)
        super().__init__(itemsets)
