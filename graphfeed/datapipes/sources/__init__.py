"""The sources of pipelines.

They make mini-batches of items, by position or from an iterable, and say which ones a rank or a worker makes. The item
sets that they read are in `graphfeed.storage.datasets`.
"""
