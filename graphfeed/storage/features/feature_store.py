"""Features by key: (domain, type, name), such as ("node", "paper", "feat"). The type is None in a graph of one type."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch

from graphfeed.ops.arguments import UnknownName, brief, checked, kind_of, nearest
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.graph.type_names import type_name
from graphfeed.storage.memory.cache_use import Cache

StoreKey: TypeAlias = tuple[str, str | None, str]
"""Domain, type and name, as in a `FeatureKey`."""
GivenKey: TypeAlias = tuple[str, str | tuple[str, str, str] | None, str]
"""Key whose edge type may also be a tuple."""


@checked
class FeatureKey(NamedTuple):
    """The key of a feature in a store.

    Attributes:
        domain: "node", "edge" or "graph".
        type: A node type, or an edge type "source:relation:destination"; None in graphs without types.
        name: Name of the feature.
    """

    domain: str
    type: str | None
    name: str


class FeatureStore:
    """A mapping from key to `Feature`. Subclasses decide where the features come from."""

    def __getitem__(self, feature_key: StoreKey) -> Feature:
        raise NotImplementedError

    def __setitem__(self, feature_key: StoreKey, feature: Feature) -> None:
        raise NotImplementedError

    def __contains__(self, feature_key: StoreKey) -> bool:
        raise NotImplementedError

    def keys(self) -> Iterable[StoreKey]:
        """Return all keys."""
        raise NotImplementedError

    @checked
    def read(
        self,
        domain: str,
        type_name: str | tuple[str, str, str] | None,
        feature_name: str,
        ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the rows of a feature at `ids`; all rows if None."""
        return self[with_type_name((domain, type_name, feature_name))].read(ids)

    @checked
    def size(self, domain: str, type_name: str | tuple[str, str, str] | None, feature_name: str) -> torch.Size:
        """Return the shape of a feature's row."""
        return self[with_type_name((domain, type_name, feature_name))].size()

    @checked
    def count(self, domain: str, type_name: str | tuple[str, str, str] | None, feature_name: str) -> int:
        """Return the number of a feature's rows."""
        return self[with_type_name((domain, type_name, feature_name))].count()

    @checked
    def metadata(self, domain: str, type_name: str | tuple[str, str, str] | None, feature_name: str) -> dict[str, Any]:
        """Return the metadata of a feature."""
        return self[with_type_name((domain, type_name, feature_name))].metadata()

    def reads_plainly(self) -> bool:
        """Return whether `read` does no more than read the feature, which a user-defined one may."""
        return type(self).read is FeatureStore.read

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the caches of the features, each named by domain, type and name; none if they are unknown."""
        return []

    def is_pinned(self) -> bool:
        """Return whether all features are in page-locked memory. Features on disk are not."""
        return all(self[key].is_pinned() for key in self.keys())

    @checked
    def update(
        self,
        domain: str,
        type_name: str | tuple[str, str, str] | None,
        feature_name: str,
        value: torch.Tensor,
        ids: torch.Tensor | None = None,
    ) -> None:
        """Overwrite the rows of a feature at `ids`; all rows if None."""
        self[with_type_name((domain, type_name, feature_name))].update(value, ids)


class BasicFeatureStore(FeatureStore):
    """A feature store that is a dict.

    Args:
        features: Features by key, (domain, type, name), as in `FeatureKey`. An edge type may be a tuple, which is
            stored as a string. A feature has a row for each node or edge of its type, by their ids.

    Example:
        >>> from graphfeed.storage.features.feature import TorchBasedFeature
        >>> store = BasicFeatureStore({("node", None, "feat"): TorchBasedFeature(torch.eye(2))})
        >>> store.read("node", None, "feat", torch.tensor([1]))
        tensor([[0., 1.]])
    """

    def __init__(self, features: Mapping[Any, Feature]) -> None:
        if not isinstance(features, Mapping):
            raise TypeError(f"features must be a dict of Feature by key, but is {kind_of(features)}")
        self._features: dict[StoreKey, Feature] = {}
        for key, feature in features.items():
            self[key] = feature

    def __getitem__(self, feature_key: GivenKey) -> Feature:
        key = with_type_name(feature_key)
        try:
            return self._features[key]
        except KeyError:
            # List similar names of the same domain and type, or else all keys.
            names = [name for *owner, name in self._features if tuple(owner) == key[:2]]
            near = nearest(str(key[2]), map(str, names)) or f"; it has {self.keys()}"
            raise UnknownName(f"feature {key} is not in the feature store{near}") from None

    def __setitem__(self, feature_key: GivenKey, feature: Feature) -> None:
        key = with_type_name(feature_key)
        # Checked by its method: features of other libraries are not of class Feature.
        if not hasattr(feature, "read"):
            raise TypeError(
                f"the feature of {key} must be a Feature, but is {brief(feature)}; wrap a tensor in TorchBasedFeature"
            )
        self._features[key] = feature

    def __contains__(self, feature_key: object) -> bool:
        return (
            isinstance(feature_key, tuple) and len(feature_key) == 3 and with_type_name(feature_key) in self._features
        )

    def __len__(self) -> int:
        return len(self._features)

    def keys(self) -> list[StoreKey]:
        """Return all keys."""
        return list(self._features)

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the caches of the features, each named by domain, type and name."""
        features: dict[Any, Any] = self._features  # including objects of other classes that read alike
        return [
            (" ".join(part for part in key if part), cache)
            for key, feature in features.items()
            if hasattr(feature, "list_caches")
            for _, cache in feature.list_caches()
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._features})"


def with_type_name(key: Any) -> StoreKey:
    if not isinstance(key, tuple) or len(key) != 3:
        raise TypeError(f"a key must be (domain, type or None, name), but is {brief(key)}")
    return key if not isinstance(key[1], tuple) else (key[0], type_name(key[1]), key[2])
