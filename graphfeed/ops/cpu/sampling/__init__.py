"""The Numba kernels of graphfeed.ops.sampling."""
