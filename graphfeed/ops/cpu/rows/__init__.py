"""The CPU's kernels of `graphfeed.ops.rows`.

Rows are copied as words of memory, whatever their dtype. The state of a cache is arrays that its owner passes in.
"""
