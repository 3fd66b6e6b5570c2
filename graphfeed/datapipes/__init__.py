"""WHAT: the stages that a pipeline is written with, one a file."""

from graphfeed.datapipes.copy_to import CopyTo
from graphfeed.datapipes.datapipe import Datapipe, Process
from graphfeed.datapipes.feature_fetcher import FeatureFetcher
from graphfeed.datapipes.item_sampler import ItemSampler
from graphfeed.datapipes.iterable_source import IterableSource
from graphfeed.datapipes.layer_neighbor_sampler import LayerNeighborSampler
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.minibatch_transformer import MiniBatchTransformer
from graphfeed.datapipes.minibatcher import minibatcher_default
from graphfeed.datapipes.neighbor_sampler import NeighborSampler
from graphfeed.datapipes.transform import Transform
from graphfeed.datapipes.traverse import find, replace, traverse

__all__ = [
    "CopyTo",
    "Datapipe",
    "FeatureFetcher",
    "ItemSampler",
    "IterableSource",
    "LayerNeighborSampler",
    "MiniBatch",
    "MiniBatchTransformer",
    "NeighborSampler",
    "Process",
    "Transform",
    "find",
    "minibatcher_default",
    "replace",
    "traverse",
]
