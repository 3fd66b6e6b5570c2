"""Passes of sampling, which programs in `graphfeed.ops.sampling` chain.

Each pass is a kernel that reads and writes the arrays of a mini-batch, which `state.py` defines.
"""
