"""Sampling graphs, the subgraphs that are sampled from them, and how graphs are built, saved and shared.

`sampling_graph.py` says what a sampler asks of a graph; a graph of another kind implements that and lives here. Reading
the source files of a data set is in `graphfeed.storage.datasets`, converting DGL's graphs in `graphfeed.interop`.
"""
