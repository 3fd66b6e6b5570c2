"""The CUDA kernels, under the names of the Numba ones; the `.cu` files hold the device code."""
