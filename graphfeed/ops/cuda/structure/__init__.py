"""The CUDA kernels of `graphfeed.ops.structure`.

Sorting, scanning and counting are PyTorch's where it has them; a kernel is here where it has not.
"""
