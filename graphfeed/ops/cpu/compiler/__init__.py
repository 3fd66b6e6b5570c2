"""Compiler of kernels: their signatures, the compilation, and the cache of machine code on disk.

Numba compiles a function for a choice of dtypes into an object file, which is saved in a cache folder, and LLVM links
it into the process. A process whose kernels are on disk never imports Numba.
"""
