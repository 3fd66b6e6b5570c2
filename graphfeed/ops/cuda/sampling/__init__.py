"""The CUDA kernels of `graphfeed.ops.sampling`.

The `.cuh` headers hold what several of them share. One hop is one launch per kernel; sampling all hops in one call
exists on the CPU alone.
"""
