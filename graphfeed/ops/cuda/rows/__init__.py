"""The CUDA kernels of `graphfeed.ops.rows`.

They also read pinned memory over the bus. Files are read on the CPU only.
"""
