"""Kernel that copies all rows except some."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, kernel


@kernel
def delete_rows(values: UInt8s, places: Int64s, row_bytes: int, out: UInt8s) -> bool:
    """Copy rows except those at `places`, between flat byte arrays; False unless these ascend and are in range."""
    rows, after, to = values.size // row_bytes, np.int64(0), np.int64(0)
    for place in places:
        if not after <= place < rows:
            return False
        size = (place - after) * row_bytes
        # The remaining rows exceed the output only if a later place is invalid.
        if to + size > out.size:
            return False
        copy_bytes(out, to, values, after * row_bytes, size)
        to += size
        after = place + 1
    copy_bytes(out, to, values, after * row_bytes, (rows - after) * row_bytes)
    return True
