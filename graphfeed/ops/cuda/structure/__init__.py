"""The CUDA kernels of graphfeed.ops.structure."""
