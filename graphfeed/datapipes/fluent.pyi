"""The types of the fluent names: each is a stage's constructor without its source. A test holds it to the registry."""

from collections.abc import Callable

import torch

from graphfeed.datapipes.copy_to import CopyTo
from graphfeed.datapipes.feature_fetcher import FeatureFetcher, Names
from graphfeed.datapipes.layer_neighbor_sampler import LayerNeighborSampler
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.minibatch_transformer import MiniBatchTransformer
from graphfeed.datapipes.neighbor_sampler import Fanouts, NeighborSampler
from graphfeed.storage import FeatureStore, SamplingGraph

FLUENT: dict[str, type]

def register(name: str, stage: type) -> None: ...

class Fluent:
    def copy_to(
        self,
        device: torch.device | str,
        non_blocking: bool = False,
    ) -> CopyTo: ...
    def fetch_feature(
        self,
        feature_store: FeatureStore,
        node_feature_keys: Names | None = None,
        edge_feature_keys: Names | None = None,
    ) -> FeatureFetcher: ...
    def sample_layer_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
        deduplicate: bool = True,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
    ) -> LayerNeighborSampler: ...
    def sample_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
    ) -> NeighborSampler: ...
    def transform(
        self,
        transformer: Callable[[MiniBatch], MiniBatch] | None = None,
    ) -> MiniBatchTransformer: ...
