"""Fetch rows that are trained apart from others, which are fetched ahead."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from graphfeed.datapipes import FeatureFetcher, MiniBatch
from graphfeed.storage.graph import type_name


class TrainedFetcher(FeatureFetcher, seeded=False, inserted=True):
    """Fetches rows that are trained, after the step, and adds them to the features that were fetched ahead."""

    order: dict[str, list[Any]] = field(default_factory=dict, kw_only=True)
    """The names of all features in the mini-batch, in the order of the arguments, for "node", "edge" and "seed_edge".
    """

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result = super().__call__(minibatch)
        result.node_features = self.joined("node", minibatch.node_features, result.node_features)
        if minibatch.edge_features:
            layers = result.edge_features or [{} for _ in minibatch.edge_features]
            pairs = zip(minibatch.edge_features, layers, strict=True)
            result.edge_features = [self.joined("edge", *both) for both in pairs]
        result.seed_edge_features = self.joined("seed_edge", minibatch.seed_edge_features, result.seed_edge_features)
        return result

    def joined(self, domain: str, ahead: Any, trained: Any) -> Any:
        if not ahead:
            return trained
        found = {**ahead, **(trained or {})}
        return {name: found[name] for name in (*self.order.get(domain, ()), *found) if name in found}


def split_trained(fetcher: FeatureFetcher) -> FeatureFetcher:
    """Return two stages, of which the second one fetches the rows that are trained; or this one if all rows are."""
    if all(key in fetcher.trained_keys for _, key in fetcher.requests()):
        return fetcher
    others, store = fetcher.changed(**names_of(fetcher, trained=False)), fetcher.feature_store
    order = {
        domain: [name if kind is None else (kind, name) for _, kind, name in keys]
        for domain, keys in fetcher.wanted.items()
    }
    return TrainedFetcher(others, store, **names_of(fetcher, trained=True), order=order)


def names_of(fetcher: FeatureFetcher, trained: bool) -> dict[str, Any]:
    """Return the arguments with the names of the features that are trained, or of the others."""

    def chosen(kind: str, of_type: Any, names: Any) -> list[str]:
        keys = {name: (kind, of_type and type_name(of_type), name) for name in names or ()}
        return [name for name, key in keys.items() if (key in fetcher.trained_keys) == trained]

    found: dict[str, Any] = {}
    for domain in fetcher.wanted:
        argument, kind = f"{domain}_feature_keys", domain.removeprefix("seed_")
        names = getattr(fetcher, argument)
        if isinstance(names, Mapping):
            found[argument] = {of_type: chosen(kind, of_type, own) for of_type, own in names.items()}
        else:
            found[argument] = chosen(kind, None, names)
    return found
