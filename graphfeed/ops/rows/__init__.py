"""Operations on rows of tensors and files (gather, copy, read, delete), and cache replacement policies.

They move rows regardless of their values. Features and caches are in `graphfeed.storage.features`.
"""

from graphfeed.ops.rows.cache_policy import (
    MOST_SLOTS,
    POLICIES,
    PolicyState,
    SlotLookup,
    clear_policy,
    find_keys,
    new_policy,
    policy_bytes,
    replace_keys,
)
from graphfeed.ops.rows.cache_sets import (
    BYTES_PER_PLACE,
    CacheSets,
    clear_sets,
    find_in_sets,
    new_sets,
    replace_in_sets,
)
from graphfeed.ops.rows.decode import decode_rows
from graphfeed.ops.rows.delete_rows import delete_from_columns, delete_rows
from graphfeed.ops.rows.gather import (
    copy_rows,
    gather_each,
    gather_long_lived,
    gather_rows,
    gather_unchecked,
    index_select,
    take_small,
)
from graphfeed.ops.rows.gather_by_page import gather_by_page
from graphfeed.ops.rows.read_rows import BLOCK_BYTES, SPAN_BYTES, read_blocks, read_bytes, read_rows
from graphfeed.ops.rows.row_plan import (
    MOST_PLANNED,
    MinibatchNeed,
    RowPlan,
    find_slots,
    new_row_plan,
    next_window,
    note_rows,
    place_rows,
    row_plan_bytes,
)
from graphfeed.ops.rows.train_rows import FLOATS, StepRule, draw_rows, train_rows

# fmt: off
__all__ = [
    "BLOCK_BYTES", "BYTES_PER_PLACE", "FLOATS", "MOST_PLANNED", "MOST_SLOTS", "POLICIES", "SPAN_BYTES", "CacheSets",
    "MinibatchNeed", "PolicyState", "RowPlan", "SlotLookup", "StepRule", "clear_policy", "clear_sets", "copy_rows",
    "decode_rows", "delete_from_columns", "delete_rows", "draw_rows", "find_in_sets", "find_keys", "find_slots",
    "gather_by_page", "gather_each", "gather_long_lived", "gather_rows", "gather_unchecked", "index_select",
    "new_policy", "new_row_plan", "new_sets", "next_window", "note_rows", "place_rows", "policy_bytes", "read_blocks",
    "read_bytes", "read_rows", "replace_in_sets", "replace_keys", "row_plan_bytes", "take_small", "train_rows",
]
# fmt: on
