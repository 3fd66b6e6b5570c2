"""The CUDA kernels of graphfeed.ops.sampling."""
