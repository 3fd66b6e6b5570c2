"""Features, stores that hold them by key, and caches in front of them.

A feature returns rows by id, wherever they lie. The policies of caches are in `graphfeed.ops.rows`, and the stage that
fetches, `FeatureFetcher`, in `graphfeed.datapipes`.
"""

from graphfeed.storage.features.feature import PYG_DIM, ReadsAhead, RemoteFeature, Spans, dtype_and_shape, row_type
from graphfeed.storage.features.feature_store import StoreKey
from graphfeed.storage.features.planned_rows import PlannedRows, bytes_of_rows
from graphfeed.storage.features.row_memory import RowMemory

__all__ = [
    "PYG_DIM", "PlannedRows", "ReadsAhead", "RemoteFeature", "RowMemory", "Spans", "StoreKey", "bytes_of_rows",
    "dtype_and_shape", "row_type",
]  # fmt: skip
