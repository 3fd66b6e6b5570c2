"""Graphs in files: `save` writes a single file, which several processes can map without a copy.

`FORMATS` in load_graph.py lists the readable formats. Data sets are in `graphfeed.storage.datasets`.
"""
