"""Fetch rows that are trained apart from others, which are fetched ahead."""

from dataclasses import field, replace
from functools import cached_property
from typing import Any

from graphfeed.datapipes import FeatureFetcher, MiniBatch
from graphfeed.datapipes.pipeline import BatchSizeEstimate, Traits
from graphfeed.storage import TrainableFeature


class TrainedFetcher(FeatureFetcher, seeded=False, inserted=True):
    """Fetches rows that are trained, after the step, and adds them to the features that were fetched ahead."""

    order: dict[str, list[Any]] = field(default_factory=dict, kw_only=True)
    """The names of all features in the mini-batch, in the order of the arguments, for "node", "edge" and "seed_edge".
    """

    def fetched(self, minibatch: MiniBatch, key: Any) -> MiniBatch:
        """Return a mini-batch with the features of both kinds."""
        result = super().fetched(minibatch, key)
        result.node_features = self.joined("node", minibatch.node_features, result.node_features)
        if minibatch.edge_features:
            layers = result.edge_features or [{} for _ in minibatch.edge_features]
            pairs = zip(minibatch.edge_features, layers, strict=True)
            result.edge_features = [self.joined("edge", *both) for both in pairs]
        result.seed_edge_features = self.joined("seed_edge", minibatch.seed_edge_features, result.seed_edge_features)
        return result

    def joined(self, domain: str, ahead: Any, trained: Any) -> Any:
        """Return features that were fetched ahead and trained ones, in the order of all."""
        if not ahead:
            return trained
        found = {**ahead, **(trained or {})}
        return {name: found[name] for name in (*self.order.get(domain, ()), *found) if name in found}


class ReadTrainedAhead(FeatureFetcher, seeded=False, inserted=True, keeps_values=True):
    """Brings rows that are trained from files into the page cache, ahead of the step. The fetch reads them again."""

    @cached_property
    def traits(self) -> Traits:
        return replace(super().traits, awaits_steps=False)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        for key, ids in self.wanted_rows(minibatch):
            feature = self.feature_store[key]
            if isinstance(feature, TrainableFeature):
                feature.read_ahead(ids)
        return minibatch

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate unchanged."""
        return before

    def may_run_in_threads(self) -> bool:
        """Return True: threads read files concurrently."""
        return True

    def may_run_in_processes(self) -> bool:
        """Return False, because other processes don't have the table."""
        return False


def split_trained(fetcher: FeatureFetcher) -> FeatureFetcher:
    """Return stages of which the last one fetches the rows that are trained, and the first one others.

    If rows are trained in files, a stage in between reads these ahead.
    """
    names, store = names_of(fetcher, trained=True), fetcher.feature_store
    source = fetcher.datapipe
    if others := any(key not in fetcher.trained_keys for _, key in fetcher.requests()):
        source = fetcher.changed(**names_of(fetcher, trained=False))
    features = [store[key] for key in fetcher.trained_keys]
    if any(isinstance(feature, TrainableFeature) and feature.is_mapped for feature in features):
        source = ReadTrainedAhead(source, store, **names)
    if not others:
        return fetcher if source is fetcher.datapipe else fetcher.changed(datapipe=source)
    order = {
        domain: [name if kind is None else (kind, name) for _, kind, name in keys]
        for domain, keys in fetcher.wanted.items()
    }
    return TrainedFetcher(source, store, **names, order=order)


def stale_by(fetcher: FeatureFetcher) -> int:
    """Return for how many mini-batches rows that are trained may be fetched before their steps."""
    tables = [fetcher.feature_store[key] for key in fetcher.trained_keys]
    # Features of other libraries may be trained, too.
    return min((own.earlier.staleness if isinstance(own, TrainableFeature) else 0 for own in tables), default=0)


def names_of(fetcher: FeatureFetcher, trained: bool) -> dict[str, Any]:
    """Return the arguments with the names of the features that are trained, or of the others."""
    found: dict[str, Any] = {}
    for domain, keys in fetcher.wanted.items():
        names: dict[str | None, list[str]] = {}
        for key in dict.fromkeys(keys):
            if (key in fetcher.trained_keys) == trained:
                names.setdefault(key[1], []).append(key[2])
        found[f"{domain}_feature_keys"] = names.get(None, names or [])
    return found
