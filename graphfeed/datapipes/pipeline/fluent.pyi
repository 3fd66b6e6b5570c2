"""Types of the fluent names: the constructor of each stage without its source. `make exports` writes them.

Each returns a `Datapipe`, so that `pipe = pipe.copy_to("cuda")` may follow any other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.feature_fetcher import Names
from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.negatives.fixed_negatives import FixedNegatives
from graphfeed.datapipes.negatives.seed_edges_excluder import Reverses
from graphfeed.datapipes.samplers.fanout_sampler import Fanout, Fanouts
from graphfeed.storage import Feature, FeatureStore, SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import HopTime, NegativeQuery

FLUENT: dict[str, type]

def register(name: str, stage: type) -> None: ...
def find_stage(name: str) -> type | None: ...
def list_names() -> list[str]: ...

class UnknownStage(AttributeError): ...

class Fluent:
    # Common to all stages: their fields determine the constructor, and some pipelines have no length.
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __len__(self) -> int: ...
    def buffer(self, buffer_size: int = 1) -> Datapipe: ...
    def compact_per_layer(self, deduplicate: bool) -> Datapipe: ...
    def copy_to(self, device: torch.device | str, non_blocking: bool = False) -> Datapipe: ...
    def exclude_seed_edges(
        self,
        include_reverse_edges: bool = False,
        reverse_etypes_mapping: Reverses | None = None,
        *,
        by_id: bool = False,
    ) -> Datapipe: ...
    def fetch_feature(
        self,
        feature_store: FeatureStore,
        node_feature_keys: Names | None = None,
        edge_feature_keys: Names | None = None,
        overlap_fetch: bool = True,
        cooperative: bool = False,
        seed_edge_feature_keys: Names | None = None,
    ) -> Datapipe: ...
    def induce_subgraph(self, graph: SamplingGraph) -> Datapipe: ...
    def mark_end(self) -> Datapipe: ...
    def mark_feature_fetcher_start(self) -> Datapipe: ...
    def prefetch(self, buffer_size: int = 10, timeout_seconds: float = 600.0) -> Datapipe: ...
    def sample_by_budget(
        self, graph: SamplingGraph, num_samples: Sequence[int] | Mapping[str, Sequence[int]]
    ) -> Datapipe: ...
    def sample_by_ppr(
        self, graph: SamplingGraph, top: int, alpha: float = 0.15, bound: float = 0.0001, per_type: bool = False
    ) -> Datapipe: ...
    def sample_by_visits(
        self,
        graph: SamplingGraph,
        fanouts: Sequence[int],
        walks: int = 200,
        length: int = 3,
        stop: float = 0.5,
        probs_name: str | None = None,
        etypes: Sequence[Any] | None = None,
    ) -> Datapipe: ...
    def sample_in_subgraph(self, graph: SamplingGraph, prob_name: str | None = None) -> Datapipe: ...
    def sample_layer_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
        deduplicate: bool = True,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        overlap_fetch: bool = False,
        *,
        cooperative: bool = False,
    ) -> Datapipe: ...
    def sample_listed_pair(
        self, edge_type: str | None, num_destinations: int, ratio: int = 1, strict: bool = False
    ) -> Datapipe: ...
    def sample_negative(self, negative_ratio: int) -> Datapipe: ...
    def sample_negative_pairs(
        self,
        graph: SamplingGraph,
        mode: Literal["binary", "triplet"],
        amount: float = 1,
        query: NegativeQuery | None = None,
    ) -> Datapipe: ...
    def sample_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
        deduplicate: bool = True,
        overlap_fetch: bool = False,
        *,
        cooperative: bool = False,
        only_new: bool = False,
        disjoint: bool = False,
    ) -> Datapipe: ...
    def sample_per_layer(
        self,
        sampler: Callable[..., SampledSubgraph],
        fanout: Fanout,
        replace: bool = False,
        prob_name: str | None = None,
        overlap_fetch: bool = False,
    ) -> Datapipe: ...
    def sample_subgraph(self) -> Datapipe: ...
    def sample_temporal_negative(
        self,
        graph: SamplingGraph,
        kind: Literal["random", "of_type", "seen", "listed"] = "random",
        ratio: int = 1,
        strict: bool = False,
        edge_timestamp_attr_name: str | None = None,
        type_name: str | None = None,
        destinations: tuple[int, int] | None = None,
        lists: FixedNegatives | None = None,
        as_columns: bool = False,
    ) -> Datapipe: ...
    def sample_uniform_negative(self, graph: SamplingGraph, negative_ratio: int) -> Datapipe: ...
    def sample_walks(
        self,
        graph: SamplingGraph,
        length: int,
        per_seed: int = 1,
        p: float = 1.0,
        q: float = 1.0,
        stop: float | Sequence[float] = 0.0,
        probs_name: str | None = None,
        etypes: Sequence[Any] | None = None,
        edge_ids: bool = False,
    ) -> Datapipe: ...
    def skip_gram(self, window: int) -> Datapipe: ...
    def temporal_sample_layer_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
        node_timestamp_attr_name: str | None = None,
        edge_timestamp_attr_name: str | None = None,
        pre_time_window: int | None = None,
        hop_time: HopTime = "seed",
        *,
        visible: Literal["seed", "batch"] = "seed",
    ) -> Datapipe: ...
    def temporal_sample_neighbor(
        self,
        graph: SamplingGraph,
        fanouts: Fanouts,
        replace: bool = False,
        prob_name: str | None = None,
        node_timestamp_attr_name: str | None = None,
        edge_timestamp_attr_name: str | None = None,
        pre_time_window: int | None = None,
        hop_time: HopTime = "seed",
        strategy: Literal["uniform", "latest"] = "uniform",
        inclusive: bool = False,
        disjoint: bool = False,
        *,
        visible: Literal["seed", "batch"] = "seed",
    ) -> Datapipe: ...
    def to_matrix(self, align: Literal["right", "left"] = "right", times: Feature | None = None) -> Datapipe: ...
    def to_pyg_data(self, by_hop: bool = True) -> Datapipe[Any]: ...
    def transform(self, transformer: Callable[[MiniBatch], MiniBatch] | None = None) -> Datapipe: ...
    def wait(self) -> Datapipe: ...

def bind(stage: type, name: str, source: Fluent) -> Callable[..., Any]: ...
