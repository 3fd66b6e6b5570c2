"""The CPU's kernels of `graphfeed.ops.records`.

They trust no byte that they read: every length is held against the end of what surrounds it before it is used. What is
wrong is written down as a code and a place, which the operation puts into words.
"""
