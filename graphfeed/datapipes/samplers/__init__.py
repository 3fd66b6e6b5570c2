"""The stages that sample a graph around the seeds, and add subgraphs to the mini-batch.

How a graph is sampled is in `graphfeed.storage.graph`, and the kernels are in `graphfeed.ops`.
"""
