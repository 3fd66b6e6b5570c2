"""Searches in ascending arrays, which several passes share."""

from graphfeed.ops.cpu.jit import device_function


@device_function
def first_above(values, low, high, target):
    """Return the first place in `low .. high - 1` of an ascending array with a value above `target`, else `high`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@device_function
def run_end(types, low, end):
    """Return where the run of edges of one type ends that begins at `low`; the column's end without types."""
    return first_above(types, low, end, types[low]) if types.size > 0 else end
