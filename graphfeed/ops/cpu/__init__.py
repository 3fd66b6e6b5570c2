"""Numba kernels: same files, functions and arguments as the ops; they compute and write, nothing else."""
