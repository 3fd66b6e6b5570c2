"""A sampler's output and the features of it as PyG's data: the end of a loader's pipeline."""

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.feature_fetcher import FeatureFetcher
from graphfeed.datapipes.pipeline.placement import Placement
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate
from graphfeed.datapipes.transform import Transform
from graphfeed.pyg.data.data_features import EDGES, DataFeatures, as_given
from graphfeed.pyg.data.edge_index import to_edge_index
from graphfeed.pyg.data.minibatch_data import HOMOGENEOUS
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch
from graphfeed.pyg.stages.to_rooted_batch import ToRootedBatch
from graphfeed.pyg.stages.to_sampler_output import edge_index_of, import_pyg
from graphfeed.storage.graph.type_names import etype_str_to_tuple, type_name


class FillData(Transform):
    """Puts a PyG `Data`, or a `HeteroData` if the graph has types, together: the names are those of PyG's loaders.

    Nothing that was fetched is copied. The data begin as a shallow copy of `features.template`, so what belongs to
    neither nodes nor edges is there too.

    Raises:
        ImportError: When it runs: PyG is not installed.
    """

    features: DataFeatures
    function: Callable[[Any], Any] | None = None
    """A function of the data, whose result takes their place. What it draws from the global generators of torch, NumPy
    and Python is seeded for each mini-batch, as for every stage from outside of this package (`Transform`)."""
    is_subgraph: bool = False
    """Whether the data keep `batch`, `seed_time` and the like where a mini-batch has none, as PyG's `subgraph` does."""
    as_edge_index: bool = False
    """Whether `edge_index` is a PyG `EdgeIndex`, which knows its size and, where it is sorted, its order."""

    @property
    def foreign(self) -> bool:  # type: ignore[override]
        """Whether there is a function, which may draw from generators that it does not own."""
        return self.function is not None

    def __call__(self, minibatch: SampledMiniBatch) -> Any:
        """Return the data, or what the function makes of them."""
        data = self.fill_in(minibatch)
        return data if self.function is None else self.function(data)

    def fill_in(self, minibatch: SampledMiniBatch) -> Any:
        """Return the data."""
        output, given = minibatch.output, self.features.template
        typed = isinstance(output.node, dict)
        if given is None:
            module = import_pyg("torch_geometric.data", "FillData")
            given = module.HeteroData() if typed else module.Data()
        data = copy.copy(given)
        if typed:
            self.fill_types(data, minibatch)
        else:
            store = data._store
            self.fill_nodes(store, minibatch, HOMOGENEOUS)
            self.fill_edges(store, minibatch, HOMOGENEOUS)
            self.put(store, {"batch": output.batch, **counts_of(output)})
            if output.orig_row is not None and output.orig_col is not None:
                store["_orig_edge_index"] = edge_index_of(output.orig_row, output.orig_col)
        for kind, values in (minibatch.of_seeds or {}).items():
            self.put(data[kind] if typed else data._store, values)
        return data

    def fill_types(self, data: Any, minibatch: SampledMiniBatch) -> None:
        """Fill in what belongs to the nodes and edges of each type."""
        output = minibatch.output
        nodes = dict.fromkeys([*data.node_types, *output.node])
        edges = dict.fromkeys([*data.edge_types, *output.row])
        for kind in nodes:
            store = data[kind]
            self.fill_nodes(store, minibatch, kind)
            put_known(
                store, {"batch": take(output.batch, kind), "num_sampled_nodes": take(output.num_sampled_nodes, kind)}
            )
        for kind in edges:
            store = data[kind]
            self.fill_edges(store, minibatch, name_of(kind))
            put_known(store, {"num_sampled_edges": take(output.num_sampled_edges, kind)})
            if output.orig_row is not None and output.orig_col is not None and kind in output.orig_row:
                store["_orig_edge_index"] = edge_index_of(output.orig_row[kind], output.orig_col[kind])

    def fill_nodes(self, store: Any, minibatch: SampledMiniBatch, kind: str) -> None:
        """Fill in the features of the nodes of a type, and their ids."""
        ids = take(minibatch.output.node, kind)
        if ids is None:
            ids = torch.empty(0, dtype=torch.int64)
        had_count = "num_nodes" in store._mapping
        self.fill(store, minibatch.node_features or {}, self.features.node_names.get(kind, ()), kind, ids)
        if had_count:
            store["num_nodes"] = len(ids)
        if store._mapping.get("n_id") is None:
            store["n_id"] = ids

    def fill_edges(self, store: Any, minibatch: SampledMiniBatch, kind: str) -> None:
        """Fill in the edges of a type, their features and their ids."""
        key = parts_of(kind) if kind else HOMOGENEOUS
        output = minibatch.output
        row, col, edge = take(output.row, key), take(output.col, key), take(output.edge, key)
        if row is None:
            row = col = edge = torch.empty(0, dtype=torch.int64)
        index = edge_index_of(row, col)
        if self.as_edge_index:
            ends = kind.split(":")[::2] if kind else (HOMOGENEOUS, HOMOGENEOUS)
            sizes = [0 if nodes is None else len(nodes) for nodes in (take(output.node, end) for end in ends)]
            index = to_edge_index(index, (sizes[0], sizes[1]))
        store[EDGES] = index
        if edge is None:
            for name in self.features.edge_names.get(kind, ()):
                store._mapping.pop(name, None)
            return
        features = minibatch.edge_features[0] if minibatch.edge_features else {}
        self.fill(store, features, self.features.edge_names.get(kind, ()), kind, edge)
        if store._mapping.get("e_id") is None:
            store["e_id"] = edge

    def fill(self, store: Any, features: Any, names: Any, kind: str, ids: torch.Tensor) -> None:
        """Fill in the features of a type: those that were fetched, or no rows of those that were not."""
        for name in names:
            rows = features.get((kind, name) if kind else name)
            if rows is None:
                rows = self.features.store.read("node" if ":" not in kind else "edge", kind or None, name, ids[:0])
            store[name] = as_given(rows, self.features.dims.get((kind, name), 0))

    def put(self, store: Any, values: dict[str, Any]) -> None:
        """Set values of one of PyG's stores. None removes what the data hold under that name, as in PyG's loaders."""
        put_known(store, values)
        if not self.is_subgraph:
            for name, value in values.items():
                if value is None:
                    store._mapping.pop(name, None)

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the size of the input, which is about that of the result."""
        return before


name_of = lru_cache(maxsize=1024)(type_name)
parts_of = lru_cache(maxsize=1024)(etype_str_to_tuple)


def take(values: Any, kind: Any) -> Any:
    """Return what belongs to a type."""
    return values.get(kind) if isinstance(values, dict) else values


def put_known(store: Any, values: dict[str, Any]) -> None:
    """Set values of one of PyG's stores, except those that are None."""
    for name, value in values.items():
        if value is not None:
            store[name] = value


def counts_of(output: Any) -> dict[str, Any]:
    """Return how many nodes and edges each hop adds."""
    return {"num_sampled_nodes": output.num_sampled_nodes, "num_sampled_edges": output.num_sampled_edges}


def fill_anew(pipe: Datapipe, features: DataFeatures) -> Datapipe:
    """Return a pipeline of `fetch_and_fill` that fetches and fills in other features."""
    nodes, edges = features.keys(features.node_names), features.keys(features.edge_names)

    def change(stage: Datapipe) -> Datapipe:
        if isinstance(stage, FeatureFetcher):
            return stage.changed(feature_store=features.store, node_feature_keys=nodes, edge_feature_keys=edges)
        if isinstance(stage, ToRootedBatch):
            return stage.changed(labels_of_roots="y" in features.node_names[HOMOGENEOUS])
        return stage.changed(features=features) if isinstance(stage, FillData) else stage

    return pipe.rewrite(change)


def fetch_and_fill(
    pipe: Datapipe,
    features: DataFeatures,
    runs_in: Placement = Placement.AUTO,
    transform: Callable[[Any], Any] | None = None,
    is_subgraph: bool = False,
    as_edge_index: bool = False,
) -> Datapipe:
    """Return a pipeline that gives PyG's data, for one that gives `SampledMiniBatch`.

    Args:
        pipe: Its last stage is a `ToSamplerOutput`, or another one that gives such mini-batches.
        features: What to fetch, and what to fill in.
        runs_in: Where features are fetched; by default, the loader decides.
        transform: A function of the data.
        is_subgraph: Whether the data keep what a mini-batch has nothing of; see `FillData`.
        as_edge_index: Whether `edge_index` is a PyG `EdgeIndex`.
    """
    nodes, edges = features.keys(features.node_names), features.keys(features.edge_names)
    fetched = pipe.fetch_feature(features.store, nodes, edges)
    fetched = fetched if runs_in is Placement.AUTO else fetched.changed(runs_in=runs_in)
    return FillData(fetched, features, transform, is_subgraph, as_edge_index)
