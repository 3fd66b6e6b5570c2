"""The CPU's kernels of `graphfeed.ops.records`.

They hold every length against the end of what surrounds it. What is wrong is a code and a place.
"""
