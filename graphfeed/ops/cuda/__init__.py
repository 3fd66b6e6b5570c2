"""The CUDA kernels: `.cu` files with the device code, and Python files that launch it.

The Python functions have the names and arguments of the Numba kernels, which describe them, and give the same bits.
`source.py` puts a kernel's text together; `launch.py` compiles and starts it, and is the only module that imports CuPy.
Streams and memory are PyTorch's.
"""
