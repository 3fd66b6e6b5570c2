"""The passes that sampling is made of, which programs in `graphfeed.ops.sampling` chain.

Each is a kernel that reads and writes arrays of a mini-batch, which are those of `state.py`.
"""
