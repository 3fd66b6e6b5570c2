"""Stages that sample a graph around the seeds, and add the subgraphs to the mini-batch.

Sampling itself is implemented in `graphfeed.storage.graph`, with kernels in `graphfeed.ops`.
"""
