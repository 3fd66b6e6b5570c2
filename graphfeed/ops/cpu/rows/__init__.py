"""The Numba kernels of graphfeed.ops.rows."""
