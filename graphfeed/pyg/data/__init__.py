"""PyG's graphs and mini-batches.

They read what a PyG program passes as its data, stores or input nodes, and say what a mini-batch looks like. Graphs and
features themselves are in `graphfeed.storage`.
"""
