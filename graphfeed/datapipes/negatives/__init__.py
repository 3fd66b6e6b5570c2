"""Stages for link prediction: they add negatives to edge seeds, and remove the seed edges from subgraphs.

The graph methods that they call are in `graphfeed.storage.graph.sampling.negatives`, samplers in `datapipes.samplers`.
"""
