"""CPU kernels, in the same folders and files as the operations that call them.

A kernel computes and writes into its arguments. Its operation checks them, raises errors and allocates memory. Kernels
are written with `jit.py` and `instructions.py`, and compiled by `compiler`, the only package that imports Numba.
"""
