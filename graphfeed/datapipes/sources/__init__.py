"""Sources of pipelines: they group items into mini-batches, and assign these to ranks and workers.

The item sets that they read, with their tasks and datasets, are in `graphfeed.storage.datasets`.
"""
