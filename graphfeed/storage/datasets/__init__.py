"""Item sets, tasks and data sets: those in a folder with a `metadata.yaml`, and WordNet, which comes with the package.

A data set is a graph, its features and its tasks. The graph's own file format is in `graphfeed.storage.graph`. As a
module, `graphfeed.datasets` has one function per data set that needs no download.
"""

from graphfeed.storage.datasets.wordnet import wordnet

__all__ = ["wordnet"]
