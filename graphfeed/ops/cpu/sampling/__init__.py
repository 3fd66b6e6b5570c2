"""The CPU's kernels of `graphfeed.ops.sampling`, and the parts that several of them share.

The contract of a kernel is the docstring of its operation. Here stands only what is particular to the CPU.
"""
