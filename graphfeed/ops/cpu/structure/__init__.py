"""CPU kernels of `graphfeed.ops.structure`.

Where the size of a result is unknown, one kernel counts and another fills, so that the operation can allocate between.
"""
