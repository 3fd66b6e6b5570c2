"""How kernels become machine code: their signatures, the compiler, and the files where the code is kept.

Numba compiles one function for one choice of dtypes into an object file (`compile.py`), a folder of the user's keeps it
(`store.py`), and LLVM links it into the process (`machine.py`). A process whose kernels are on disk never imports
Numba.
"""
