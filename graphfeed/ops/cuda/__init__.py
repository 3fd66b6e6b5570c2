"""The CUDA kernels, under the names of the Numba ones; `kernels.cu` holds all device code."""
