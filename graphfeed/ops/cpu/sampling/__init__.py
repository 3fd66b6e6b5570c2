"""CPU kernels of `graphfeed.ops.sampling`, and functions that several of them share.

The docstring of an operation is the contract of its kernel. Docstrings here describe only what is specific to the CPU.
"""
