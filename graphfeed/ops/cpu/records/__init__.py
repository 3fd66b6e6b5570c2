"""The CPU's kernels of `graphfeed.ops.records`.

They trust no byte: every length is held against the end of what surrounds it. What is wrong is a code and a place,
which the operation puts into words.
"""
