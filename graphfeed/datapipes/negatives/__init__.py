"""The stages for link prediction: they draw negatives for seeds that are edges, and remove the seeds' own edges.

The graphs' side of it is in `graphfeed.storage.graph.sampling.negatives`, and samplers are in `datapipes.samplers`.
"""
