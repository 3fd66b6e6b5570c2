"""Kernel that turns weights into fixed-point running sums."""

from graphfeed.ops.cuda.launch import launch


def cumulate_weights(indptr, weights, out):
    """Write each column's running sum of weights, in units of `2**-31` of the column's largest."""
    columns = indptr.numel() - 1
    launch("cumulate_weights", columns, indptr, indptr.itemsize, weights, weights.itemsize, columns, out)
