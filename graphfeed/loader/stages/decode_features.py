"""Fetch codes of features, and decode them after they were moved."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, MiniBatch, Placement, Transform
from graphfeed.storage import EncodedFeature, Feature, FeatureStore
from graphfeed.storage.features import StoreKey, is_encoded, stored_rows
from graphfeed.storage.memory import Cache


class CodesStore(FeatureStore):
    """A feature store with the codes of encoded features."""

    def __init__(self, decoded: FeatureStore) -> None:
        self.decoded = decoded

    def __getitem__(self, feature_key: StoreKey) -> Feature:
        return stored_rows(self.decoded[feature_key])

    def __contains__(self, feature_key: StoreKey) -> bool:
        return feature_key in self.decoded

    def keys(self) -> Iterable[StoreKey]:
        return self.decoded.keys()

    def list_caches(self) -> list[tuple[str, Cache]]:
        return self.decoded.list_caches()


class DecodeFeatures(Transform, seeded=False, inserted=True, one_to_one=True, keeps_size=True, runs_in=Placement.MAIN):
    """Decodes features whose codes were fetched, on the device of the mini-batch."""

    encoded: dict[str, Any]
    """The encoded features by their names in the mini-batch, for "node", "edge" and "seed_edge"."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        result = copy.copy(minibatch)
        result.node_features = self.decode("node", minibatch.node_features)
        if minibatch.edge_features is not None:
            result.edge_features = [self.decode("edge", layer) for layer in minibatch.edge_features]
        result.seed_edge_features = self.decode("seed_edge", minibatch.seed_edge_features)
        return result

    def decode(self, domain: str, features: Mapping[Any, torch.Tensor] | None) -> Any:
        """Return the features of a mini-batch for a domain, of which those that are codes are decoded."""
        if features is None:
            return None
        known = self.encoded.get(domain, {})
        return {name: known[name].decode(rows) if name in known else rows for name, rows in features.items()}


def fetch_codes(fetcher: Datapipe) -> tuple[FeatureFetcher, dict[str, Any]] | None:
    """Return a stage that fetches codes, and the features that decode them; None if there are none."""
    if type(fetcher) is not FeatureFetcher:  # a subclass may change the rows
        return None
    encoded: dict[str, dict[Any, EncodedFeature]] = {}
    for domain, key in fetcher.requests():
        feature = fetcher.features().get(key)
        if is_encoded(feature):
            encoded.setdefault(domain, {})[key[2] if key[1] is None else key[1:]] = feature
    if not encoded or fetcher.traits.cooperative or not fetcher.feature_store.reads_plainly():
        return None
    return fetcher.changed(feature_store=CodesStore(fetcher.feature_store)), encoded


def decoded_features(fetcher: FeatureFetcher) -> dict[StoreKey, Feature]:
    """Return the features that a stage fetches, which are encoded ones if it fetches their codes."""
    store = fetcher.feature_store
    return {
        key: store.decoded[key] if isinstance(store, CodesStore) else own for key, own in fetcher.features().items()
    }
