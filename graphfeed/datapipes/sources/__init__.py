"""The sources of pipelines: they make mini-batches of items, and say which ones a rank or a worker makes.

The item sets that they read, with their tasks and data sets, are in `graphfeed.storage.datasets`.
"""
