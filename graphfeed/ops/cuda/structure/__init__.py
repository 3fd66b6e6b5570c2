"""The CUDA kernels of `graphfeed.ops.structure`.

Sorting, scanning and counting use PyTorch where possible; other operations have kernels.
"""
