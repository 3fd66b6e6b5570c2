"""Graphs in files: what `save` writes is one file that several processes map without a copy.

`formats` lists what can be read. Data sets, with features and tasks as well, are in `graphfeed.storage.datasets`.
"""
