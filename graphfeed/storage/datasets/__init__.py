"""Datasets that come with the package; each is a function that returns a `Dataset`."""

from graphfeed.storage.datasets.wordnet import wordnet

__all__ = ["wordnet"]
