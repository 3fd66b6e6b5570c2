"""The CUDA kernels of `graphfeed.ops.rows`.

They also read pinned memory over the bus. Reading files has no kernel here: that is done on the CPU.
"""
