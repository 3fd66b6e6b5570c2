"""Fetch the features of a mini-batch."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, Counts
from graphfeed.datapipes.pipeline.traits import Traits
from graphfeed.datapipes.pipeline.traverse import graphs_before, seed_types_before
from graphfeed.datapipes.samplers.fanout_sampler import check_alone
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import is_gpu
from graphfeed.ops.arguments import UnknownName, brief, check_known, kind_of, nearest
from graphfeed.storage import Feature, FeatureStore
from graphfeed.storage.features import PYG_DIM, StoreKey, read_each, stored_rows
from graphfeed.storage.graph import ByType, FusedCSCSamplingGraph, count_edge_rows, to_type_dict, type_name
from graphfeed.storage.memory import Shareable

Names: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]] | Mapping[tuple[str, str, str], Sequence[str]]


def feature_keys(domain: str, names: Names) -> list[StoreKey]:
    """Return the keys in the store for a list of names, or for a dict of lists by type. Seed edges have edge keys."""
    lists: list[Any] = list(names.values()) if isinstance(names, Mapping) else [names]
    if not all(own is None or is_list_of_names(own) for own in lists):
        raise TypeError(
            f"{domain}_feature_keys must be a list of names, or a dict of lists by type, but is {brief(names)}"
        )
    kind = domain.removeprefix("seed_")
    if isinstance(names, Mapping):
        return [(kind, type_name(of_type), name) for of_type, own in names.items() for name in own or ()]
    return [(kind, None, name) for name in names]


def is_list_of_names(value: object) -> bool:
    # A string is an iterable of strings too.
    return isinstance(value, Iterable) and not isinstance(value, str) and all(isinstance(own, str) for own in value)


def instead_of(key: StoreKey, known: Sequence[StoreKey]) -> str:
    """Return the end of an error message for a feature that the store lacks: what may have been meant."""
    domain, of_type, name = key
    names = [other[2] for other in known if tuple(other[:2]) == key[:2]]
    if near := nearest(name, names):
        return near
    if of_type is None and not names and any(other[0] == domain for other in known):
        return f", which has features by {domain} type; give a dict of lists of names by {domain} type"
    return f"; it has {sorted(map(tuple, known), key=str)!s:.120}"


def nodes_of(minibatch: MiniBatch) -> ByType | None:
    ids = minibatch.node_ids()
    # A mini-batch without subgraphs gets the features of its seeds.
    return minibatch.seeds if ids is None else ids


def edges_of(minibatch: MiniBatch) -> list[ByType | None]:
    return [minibatch.edge_ids(layer) for layer in range(minibatch.num_layers())]


def seed_edges_of(minibatch: MiniBatch) -> ByType:
    if minibatch.seed_edge_ids is None:
        raise ValueError(
            "seed_edge_feature_keys need the ids of the seeds' edges, but the mini-batch has no seed_edge_ids; give "
            "the item set a member of that name"
        )
    return minibatch.seed_edge_ids


class FeatureFetcher(Transform, name="fetch_feature", seeded=False):
    """Fetches the features of the input nodes, of each hop's edges, and of edge seeds.

    Sets `node_features`, `edge_features` and `seed_edge_features`. A mini-batch that was not sampled gets the features
    of its node seeds. Types without nodes in the mini-batch are left out. If the mini-batch is on a GPU, so are its
    features: the GPU reads them directly if it can; otherwise they are copied.

    Runs in the main process, which has the feature caches, UVA and CUDA, so the loader cuts the pipeline here. Worker
    threads can fetch if all features are in CPU memory, local or on other ranks. Worker processes can fetch if all
    features are in memory that they share, and if other stages that they can run follow; if none do, threads of the
    main process fetch, which saves one copy of the rows. `changed(runs_in=...)` chooses where (see `Placement`).
    Rows of a `TrainableFeature` require gradients; the loader fetches them when you request the next mini-batch.

    Args:
        datapipe: Source of the mini-batches.
        feature_store: The features by domain ("node" or "edge"), type and name.
        node_feature_keys: Names of node features, or a dict of lists of names by node type if the graph has types.
        edge_feature_keys: Names of edge features, or a dict of lists of names by edge type if the graph has types.
        overlap_fetch: Whether the loader, after a copy to a GPU, fetches ahead of the caller's step on a separate
            stream. On the CPU, workers always run ahead.
        cooperative: Whether each rank of a joint mini-batch reads the rows of the nodes that it owns, and sends them to
            the ranks that need them. The sampler needs `cooperative=True` as well. With a single rank, it has no
            effect.
        seed_edge_feature_keys: Names of features of the edges in the mini-batch's `seed_edge_ids`, or a dict of lists
            of names by edge type. The item set needs a member `seed_edge_ids`, as those of `graphfeed ingest` have.
            Negatives have no features.

    Raises:
        KeyError: The store does not have a feature, or a type is neither in the store nor in the graphs of earlier
            stages. If the store has no feature of a type of the graph, the error is raised for the first mini-batch
            that has nodes or edges of the type.
        RuntimeError: When it runs: `cooperative` on several ranks without a DataLoader.
    """

    _apart_from_inputs: ClassVar[tuple[str, ...]] = ("wanted",)

    feature_store: FeatureStore
    node_feature_keys: Names | None = None
    edge_feature_keys: Names | None = None
    overlap_fetch: bool = True
    cooperative: bool = False
    seed_edge_feature_keys: Names | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.feature_store, FeatureStore):
            raise TypeError(
                f"feature_store must be a FeatureStore, but is {kind_of(self.feature_store)}; "
                "make one with BasicFeatureStore"
            )
        known = list(self.feature_store.keys())
        self.check_types(known)
        for argument, key in self.requests():
            # A store without features of a type is an error only once a mini-batch has nodes or edges of it.
            of_same_type = [other for other in known if tuple(other[:2]) == key[:2]]
            if key not in self.feature_store and (key[1] is None or of_same_type):
                domain, of_type, name = key
                owner = f"{domain} type {brief(of_type)}" if of_type else f"{domain}s"
                raise UnknownName(
                    f"{argument}_feature_keys: feature {brief(name)} of {owner} is not in the store"
                    f"{instead_of(key, known)}"
                )
        self.check_rows()
        if self.cooperative and self.trained_keys:
            raise ValueError(
                "cooperative=True can't fetch rows that are trained; leave it out here and in the samplers"
            )

    def check_types(self, known: list[StoreKey]) -> None:
        """Raise for a type that is in neither the store, nor the graphs of earlier stages, nor the items."""
        graphs = graphs_before(self)
        edge_types: set[Any] = {kind for graph in graphs for kind in graph.edge_types or (None,)}
        there: dict[str, set[Any]] = {
            "node": {kind for graph in graphs for kind in to_type_dict(graph.num_nodes)},
            "edge": edge_types,
            "seed_edge": edge_types | (seed_types_before(self) or set()),
        }
        for argument, key in self.requests():
            # Without a graph, the types are unknown.
            if there[argument] and key[1] is not None and key not in self.feature_store:
                types = there[argument] | {type_name(own[1]) for own in known if own[0] == key[0]}
                check_known(f"{argument}_feature_keys", [key[1]], types - {None}, f"{key[0]} type")

    def check_rows(self) -> None:
        """Raise if a feature has fewer rows than the graph of the last sampler before this stage has nodes or edges."""
        graph = next(reversed(graphs_before(self)), None)
        needed = {} if graph is None else to_type_dict(graph.num_nodes)
        features = self.features()
        # Edge seeds need not be edges of this graph.
        for domain, key in [own for own in self.requests() if own[0] != "seed_edge" and own[1] in features]:
            _, of_type, name = key
            there = needed.get(of_type, 0) if domain == "node" else 0
            if domain == "edge" and isinstance(graph, FusedCSCSamplingGraph):
                there = count_edge_rows(graph, of_type)
            if (rows := features[key].count()) < there:
                owner = f" of {domain} type {brief(of_type)}" if of_type else ""
                has = f"{there} nodes" if domain == "node" else f"{there} edges, by their ids"
                raise ValueError(
                    f"{domain}_feature_keys: feature {brief(name)}{owner} has {rows} rows, but the graph has {has}; "
                    f"give it a row for each {domain}"
                )

    @cached_property
    def wanted(self) -> dict[str, list[StoreKey]]:
        """Keys of the features to fetch, by "node", "edge" and "seed_edge"; only those that were requested."""
        names = {
            "node": self.node_feature_keys,
            "edge": self.edge_feature_keys,
            "seed_edge": self.seed_edge_feature_keys,
        }
        return {argument: feature_keys(argument, own) for argument, own in names.items() if own is not None}

    @cached_property
    def trained_keys(self) -> set[StoreKey]:
        """Keys of the features to fetch whose rows are trained (`TrainableFeature`)."""
        # Features of other libraries may not say it.
        return {key for key, feature in self.features().items() if getattr(feature, "is_trained", False)}

    @cached_property
    def traits(self) -> Traits:
        of_class = super().traits
        return replace(of_class, awaits_steps=True) if self.trained_keys else of_class

    def requests(self) -> list[tuple[str, StoreKey]]:
        """Return pairs of "node", "edge" or "seed_edge" and the key of a feature to fetch."""
        return [(argument, key) for argument, keys in self.wanted.items() for key in keys]

    def features(self) -> dict[StoreKey, Feature]:
        """Return the features to fetch that the store has, by key."""
        return {key: self.feature_store[key] for _, key in self.requests() if key in self.feature_store}

    @cached_property
    def dims(self) -> dict[StoreKey, int] | None:
        """The dimensions for `MiniBatch.feature_dims`; None if no feature comes from PyG's data."""
        # Features of other libraries may have no metadata.
        known: dict[StoreKey, dict[str, Any]] = {
            key: getattr(feature, "metadata", dict)() for key, feature in self.features().items()
        }
        return {key: metadata[PYG_DIM] for key, metadata in known.items() if PYG_DIM in metadata} or None

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        # Mini-batches that a program makes itself have no keys.
        return self.fetched(minibatch, object() if minibatch.key is None else minibatch.key)

    def fetched(self, minibatch: MiniBatch, key: Any) -> MiniBatch:
        """Return a mini-batch with features, whose rows that are trained are fetched with a key."""
        if self.cooperative:
            check_alone(self)
        result = copy.copy(minibatch)
        if self.dims:
            result.feature_dims = {**(minibatch.feature_dims or {}), **self.dims}
        if "node" in self.wanted:
            result.node_features = self.read("node", nodes_of(minibatch), key)
        if "edge" in self.wanted:
            result.edge_features = [self.read("edge", ids, key) for ids in edges_of(minibatch)]
        if "seed_edge" in self.wanted:
            result.seed_edge_features = self.read("seed_edge", seed_edges_of(minibatch), key)
        return result

    def wanted_rows(self, minibatch: MiniBatch) -> Iterator[tuple[StoreKey, torch.Tensor]]:
        """Yield the key and the row ids of each feature to fetch for a mini-batch."""
        if "node" in self.wanted:
            yield from self.look_ups("node", nodes_of(minibatch))
        if "edge" in self.wanted:
            for ids in edges_of(minibatch):
                yield from self.look_ups("edge", ids)
        if "seed_edge" in self.wanted:
            yield from self.look_ups("seed_edge", seed_edges_of(minibatch))

    def read(self, domain: str, ids: ByType | None, minibatch: Any = None) -> dict[Any, torch.Tensor]:
        """Return the features of some nodes or edges of a mini-batch with a key, by name or by (type, name)."""
        features: dict[Any, torch.Tensor] = {}
        store, reads_plainly = self.feature_store, self.feature_store.reads_plainly()
        asked, found = list(self.look_ups(domain, ids)), None
        if reads_plainly and not self.trained_keys:
            found = read_each([store[key] for key, _ in asked], [wanted for _, wanted in asked])
        for number, (key, wanted) in enumerate(asked):
            # The keys were checked when the stage was built.
            if found is not None:
                rows = found[number]
            elif key in self.trained_keys:
                rows = store[key].fetch(wanted, minibatch)
            else:
                rows = store[key].read(wanted) if reads_plainly else store.read(*key, wanted)
            # If the ids are on a GPU, rows that were read from CPU memory are copied there.
            rows = rows if wanted.is_cpu or not is_gpu(wanted.device) else rows.to(wanted.device)
            features[key[2] if key[1] is None else key[1:]] = rows
        return features

    def look_ups(self, domain: str, ids: ByType | None) -> Iterator[tuple[StoreKey, torch.Tensor]]:
        """Yield the key and the row ids of each feature to read for a domain."""
        is_plain = isinstance(ids, torch.Tensor)
        by_type: dict[Any, torch.Tensor] | None = ids if isinstance(ids, dict) else None
        for key in self.wanted[domain]:
            of_type = key[1]
            if of_type is not None and is_plain:
                raise TypeError(
                    f"{domain}_feature_keys is a dict by type, but the mini-batch has no types; give a list of names"
                )
            if of_type is None and by_type is not None:
                raise TypeError(
                    f"{domain}_feature_keys is a list, but the mini-batch has types {[*by_type]}; give a dict by type"
                )
            wanted: Any = ids if by_type is None else by_type.get(of_type)
            # A feature that the store lacks is an error only if the mini-batch has nodes or edges of its type.
            if wanted is not None and (wanted.numel() or key in self.feature_store):
                yield key, wanted

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate plus one row of each feature per node or edge; None if the dtype of one is unknown."""
        if before is None:
            return None
        sizes: dict[str, Sequence[Counts]] = {"node": [before.nodes], "edge": before.edges}
        sizes["seed_edge"] = [before.seed_edges]
        total, features = 0.0, self.features()
        for argument, key in [(argument, key) for argument, key in self.requests() if key in features]:
            feature, of_type = features[key], key[1]
            for count in sizes[argument]:
                # An untyped feature of a graph with types, or a typed one of a graph without, has no count.
                if feature.dtype is None or (of_type is None) != (None in count):
                    return None
                total += feature.dtype.itemsize * feature.size().numel() * count.get(of_type, 0)
        return before.plus(total)

    def may_run_in_threads(self) -> bool:
        """Return whether worker threads can read all features as fast as the main thread can."""
        return self.traits.one_to_one and all(feature.may_read_in_threads() for feature in self.features().values())

    def may_run_in_processes(self) -> bool:
        """Return whether every feature is in CPU memory that other processes can share, or in a mapped file."""
        stored = map(stored_rows, self.features().values())
        return self.may_run_in_threads() and all(isinstance(own, Shareable) for own in stored)
