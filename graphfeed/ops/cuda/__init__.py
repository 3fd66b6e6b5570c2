"""The CUDA kernels: `.cu` files with the device code, and Python files that launch it.

The Python functions have the names and arguments of the Numba kernels, where they are documented, and their results are
bit-identical. `source.py` assembles the source of a kernel; `launch.py` compiles and launches it, and is the only
module that imports CuPy. Streams and memory are PyTorch's.
"""
