"""Graphs in files.

`formats` lists what can be read. What `save` writes is one file that several processes map without a copy. Data sets,
which have features and tasks as well, are in `graphfeed.storage.datasets`.
"""
