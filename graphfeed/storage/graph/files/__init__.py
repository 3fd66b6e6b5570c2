"""Graphs in files.

A graph is saved in one file, and opened by several processes without a copy. Data sets, which have features and tasks
as well, are in `graphfeed.storage.datasets`.
"""
