"""The CUDA kernels of `graphfeed.ops.sampling`.

The `.cuh` headers have the code that several kernels share. Hops are sampled one by one; programs that sample all hops
in a single call exist on the CPU only.
"""
