"""Features, stores of features by key, and caches in front of features.

A feature returns rows by id, wherever they are stored. Cache policies are in `graphfeed.ops.rows`; the stage that
fetches features, `FeatureFetcher`, is in `graphfeed.datapipes`.
"""

from graphfeed.storage.features.check_rows import check_constant
from graphfeed.storage.features.encoded_feature import is_encoded, open_codes, stored_rows, wrap_stored
from graphfeed.storage.features.feature import (
    PYG_DIM,
    ReadsAhead,
    RemoteFeature,
    Spans,
    dtype_and_shape,
    row_type,
)
from graphfeed.storage.features.feature_store import StoreKey
from graphfeed.storage.features.fetched_rows import FetchAhead
from graphfeed.storage.features.planned_rows import PlannedRows, bytes_of_rows
from graphfeed.storage.features.read_each import read_each
from graphfeed.storage.features.row_memory import RowMemory, cancel_reads
from graphfeed.storage.features.trained_files import Tables, new_table

__all__ = [
    "PYG_DIM", "FetchAhead", "PlannedRows", "ReadsAhead", "RemoteFeature", "RowMemory", "Spans", "StoreKey", "Tables",
    "bytes_of_rows", "cancel_reads", "check_constant", "dtype_and_shape", "is_encoded", "new_table", "open_codes",
    "read_each", "row_type", "stored_rows", "wrap_stored",
]  # fmt: skip
