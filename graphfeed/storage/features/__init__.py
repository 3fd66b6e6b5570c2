"""Features, stores that hold them by key, and caches in front of them.

A feature returns rows by id, wherever they lie. The policies of the caches are operations, in `graphfeed.ops.rows`. The
stage that fetches is `FeatureFetcher`, in `graphfeed.datapipes`.
"""

from graphfeed.storage.features.cached_feature import row_type
from graphfeed.storage.features.feature import RemoteFeature, dtype_and_shape
from graphfeed.storage.features.planned_rows import PlannedRows, file_bytes
from graphfeed.storage.features.row_memory import RowMemory

__all__ = ["PlannedRows", "RemoteFeature", "RowMemory", "dtype_and_shape", "file_bytes", "row_type"]
