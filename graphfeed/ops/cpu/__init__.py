"""The kernels for the CPU, in the same folders and files as the operations that call them.

A kernel computes and writes into its arguments; its operation checks, raises and allocates. Kernels are written with
`jit.py` and `instructions.py`, and become machine code in `compiler`, which alone imports Numba.
"""
