"""How kernels become machine code: their signatures, the compiler, and the files where the code is kept.

Numba compiles a function for a choice of dtypes into an object file, a folder of the user's keeps it, and LLVM links it
into the process. A process whose kernels are on disk never imports Numba.
"""
