"""CPU kernels of `graphfeed.ops.structure`.

If the size of a result is unknown, one kernel counts, the operation allocates, and another kernel fills.
"""
