"""The kernels for the CPU, in the same folders and files as the operations that call them.

A kernel computes and writes into its arguments. It doesn't check, raise or allocate: that is the task of its operation.
Kernels are written with `jit.py` and the instructions of `instructions.py`. How they become machine code, and where
that is kept, is in `compiler`, which alone imports Numba.
"""
