"""CPU kernels of `graphfeed.ops.records`.

They check every length against the end of the enclosing data. Errors are reported as a code and a position.
"""
