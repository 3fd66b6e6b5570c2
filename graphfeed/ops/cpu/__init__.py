"""The Numba kernels, in the same folders and files as the operations, with the same names of functions and arguments.

A kernel computes and writes into its arguments. It doesn't check, raise or allocate what it returns: that is the task
of its operation. Compiler options and tricks are in `jit.py`; machine code is kept by `kernel_cache.py`. Nothing
outside of this folder imports Numba.
"""
