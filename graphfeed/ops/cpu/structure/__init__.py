"""The Numba kernels of graphfeed.ops.structure."""
