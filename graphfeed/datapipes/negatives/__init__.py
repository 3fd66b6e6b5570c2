"""The stages for link prediction.

They draw negatives for seeds that are edges, and remove the seeds' own edges from subgraphs. The graphs' side of it is
in `graphfeed.storage.graph.sampling.negatives`.
"""
