"""The CUDA kernels of graphfeed.ops.rows."""
