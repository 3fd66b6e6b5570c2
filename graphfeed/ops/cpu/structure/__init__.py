"""The CPU's kernels of `graphfeed.ops.structure`.

They find or count in one pass and fill in another, so that the operation can allocate in between.
"""
