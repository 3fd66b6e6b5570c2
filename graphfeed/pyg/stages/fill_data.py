"""The last stages of a pipeline: mini-batches as PyG's data, with their features."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, MiniBatch, Transform
from graphfeed.datapipes.pipeline import Placement, Traits
from graphfeed.ops.arguments import kind_of
from graphfeed.pyg.data.features_of_data import EDGES, DataFeatures, as_given
from graphfeed.pyg.data.fill_batch import fill_batch
from graphfeed.pyg.data.store_data import end_types
from graphfeed.pyg.data.tables import import_pyg, tables_of
from graphfeed.pyg.stages.sampler_output import SampledMiniBatch, edge_index_of
from graphfeed.storage.graph import etype_str_to_tuple


class ToRootedBatch(Transform, keeps_size=True, seeded=False):
    """Turns a `Data` with a sorted `batch`, where each part begins with its root, into a PyG `Batch` of these parts.

    It has `ptr`, the offsets of the parts, and `root_n_id`, the rows of the roots.
    """

    labels_of_roots: bool = False
    """Whether `y` is a node attribute, so that only the roots' labels are kept."""

    def __call__(self, data: Any) -> Any:
        counts = torch.bincount(data.batch, minlength=data.batch_size)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        module = import_pyg("torch_geometric.data", "ToRootedBatch")
        batch = module.Batch(batch=data.batch, ptr=ptr)
        batch.root_n_id = ptr[:-1]
        for name, value in data.stores[0].items():
            if name not in ("batch", "batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges"):
                batch[name] = value[batch.root_n_id] if name == "y" and self.labels_of_roots else value
        return batch


Columns: TypeAlias = list[tuple[tuple[str, str | None, str], int]]
"""The key of each feature in the store, and the dimension that counts nodes or edges (`DataFeatures.dims`)."""
NO_CONTENTS: tuple[Columns, set[str]] = [], set()


class FillData(Transform, keeps_size=True, seeded=False):
    """Builds a PyG `Data`, or a `HeteroData` if the graph has types, with the attribute names of PyG's loaders.

    Fetched rows are not copied. Attributes that belong to neither nodes nor edges come from `features.template`.
    """

    _apart_from_inputs: ClassVar[tuple[str, ...]] = ("traits", "contents")

    features: DataFeatures
    function: Callable[[Any], Any] | None = None
    """A function of the data, whose result replaces them. Its draws from the global generators of torch, NumPy and
    Python are seeded for each mini-batch, as for every stage from outside of this package (`Transform`)."""
    is_subgraph: bool = False
    """Whether the data keep `batch`, `seed_time` and similar attributes if a mini-batch has none, like `subgraph`."""
    as_edge_index: bool = False
    """Whether `edge_index` is a PyG `EdgeIndex`, with its size and, if it is sorted, its order."""

    @cached_property
    def traits(self) -> Traits:
        """The traits of the class. If there is a function, it may draw from global generators."""
        return replace(super().traits, seeded=self.function is not None)

    def __call__(self, minibatch: SampledMiniBatch) -> Any:
        data = self.fill_in(minibatch)
        return data if self.function is None else self.function(data)

    @cached_property
    def contents(self) -> dict[tuple[str, Any], tuple[Columns, set[str]]]:
        """For the nodes and edges of each type: the features to fetch, and all names in the table of the template."""
        features = self.features
        columns: dict[tuple[str, Any], Columns] = {}
        for domain, by_type in (("node", features.node_names), ("edge", features.edge_names)):
            for owner, names in by_type.items():
                of_type: Any = etype_str_to_tuple(owner) if owner is not None and domain == "edge" else owner
                columns[domain, of_type] = [
                    ((domain, owner, name), features.dims.get((owner, name), 0)) for name in names
                ]
        tables = {} if features.template is None else tables_of(features.template).by_type
        found = {of_type: set(table) for of_type, table in tables.items()}
        for (_, of_type), own in columns.items():
            found.setdefault(of_type, set()).update(name for (*_, name), _ in own)
        return {key: (columns.get(key, []), found[key[1]]) for key in product(("node", "edge"), found)}

    def fill_in(self, minibatch: SampledMiniBatch) -> Any:
        """Build the data, without applying the function."""
        output, given = minibatch.output, self.features.template
        typed = isinstance(output.node, dict)
        if given is None:
            module = import_pyg("torch_geometric.data", "FillData")
            given = module.HeteroData() if typed else module.Data()
        # A shallow copy has separate tables, in which values replace the placeholders. PyG's tables remove an attribute
        # that is set to None.
        data = copy.copy(given)
        tables = tables_of(data)
        nodes, edges = tables.nodes, tables.edges
        if typed:  # the template may lack some types
            nodes.update({of_type: data[of_type] for of_type in output.node if of_type not in nodes})
            edges.update({of_type: data[of_type] for of_type in output.row if of_type not in edges})
        # Without types, nodes and edges have the same table, and their values have the type None.
        parts = [(part or {}) if typed else {None: part} for part in values_of(output)]
        own: dict[str, dict[Any, Any]] = dict(zip(FIELDS, parts, strict=True))
        for node_type, table in nodes.items():
            self.fill_nodes(table, own["node"].get(node_type), minibatch.node_features or {}, node_type)
        for edge_type, table in edges.items():
            self.fill_edges(table, own, minibatch.edge_features[0] if minibatch.edge_features else {}, edge_type)
        # As in PyG's loaders, None removes an attribute of that name from data without types.
        replaces = not (typed or self.is_subgraph)
        for node_type, trees in own["batch"].items():
            # In a `Batch`, `batch` is a node attribute like others.
            replaces_own = replaces and "batch" not in self.features.node_names.get(node_type, ())
            if node_type in nodes and (trees is not None or replaces_own):
                nodes[node_type]["batch"] = trees
        for tables_of_counts, name in ((nodes, "num_sampled_nodes"), (edges, "num_sampled_edges")):
            for of_type, counts in own[name].items():
                # A sampler may count the edges of types that the data lack.
                if of_type in tables_of_counts and (counts is not None or replaces):
                    tables_of_counts[of_type][name] = counts
        for edge_type, row in own["orig_row"].items():
            if row is not None and edge_type in edges:
                edges[edge_type]["_orig_edge_index"] = edge_index_of(row, own["orig_col"][edge_type])
        for owner, values in (minibatch.of_seeds or {}).items():
            # The data may lack the type.
            table = nodes[None] if owner is None else data[owner]
            for name, value in values.items():
                if value is not None or not self.is_subgraph:
                    table[name] = value
        return data

    def fill_nodes(self, table: Any, ids: Any, fetched: Mapping[Any, Any], node_type: Any) -> None:
        """Set the features and the ids of the nodes of a type."""
        if ids is None:
            ids = torch.empty(0, dtype=torch.int64, device="cpu")
        columns, names = self.contents.get(("node", node_type), NO_CONTENTS)
        if columns:
            self.fill(table, columns, ids, fetched)
        if "num_nodes" in names:
            table["num_nodes"] = len(ids)
        if "n_id" not in names:
            table["n_id"] = ids

    def fill_edges(self, table: Any, own: dict[str, Any], fetched: Mapping[Any, Any], edge_type: Any) -> None:
        """Set the edges of a type, their features and their ids."""
        row, col, edge = own["row"].get(edge_type), own["col"].get(edge_type), own["edge"].get(edge_type)
        if row is None or col is None:
            row = col = edge = torch.empty(0, dtype=torch.int64, device="cpu")
        index = edge_index_of(row, col)
        if self.as_edge_index:
            ends = (own["node"].get(end) for end in end_types(edge_type))
            sources, destinations = (0 if nodes is None else len(nodes) for nodes in ends)
            index = to_edge_index(index, (sources, destinations))
        table[EDGES] = index
        columns, names = self.contents.get(("edge", edge_type), NO_CONTENTS)
        if edge is None:
            # Without the ids of the edges, their features are unknown.
            for key, _ in columns:
                table[key[-1]] = None
            return
        if columns:
            self.fill(table, columns, edge, fetched)
        if "e_id" not in names:
            table["e_id"] = edge

    def fill(self, table: Any, columns: Columns, ids: torch.Tensor, fetched: Mapping[Any, Any]) -> None:
        """Set the fetched features of a type, and empty ones for those that were not fetched."""
        for key, dim in columns:
            _, owner, name = key
            rows = fetched.get(name if owner is None else (owner, name))
            # The mini-batch has no nodes or edges of the type: the feature gets no rows.
            if rows is None:
                rows = self.features.store.read(*key, ids[:0])
            table[name] = as_given(rows, dim) if dim else rows


FIELDS = ("node", "row", "col", "edge", "batch", "num_sampled_nodes", "num_sampled_edges", "orig_row", "orig_col")
"""Fields of a sampler output that belong to types."""
values_of = attrgetter(*FIELDS)


def fill_anew(pipe: Datapipe, features: DataFeatures) -> Datapipe:
    """Replace the features in a pipeline of `fetch_and_fill`."""

    def change(stage: Datapipe) -> Datapipe:
        if isinstance(stage, FeatureFetcher):
            return stage.changed(
                feature_store=features.store, node_feature_keys=features.node_keys, edge_feature_keys=features.edge_keys
            )
        if isinstance(stage, ToRootedBatch):
            return stage.changed(labels_of_roots="y" in features.node_names[None])
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
    """Append the stages that turn each `SampledMiniBatch` into PyG's data."""
    fetched = pipe.fetch_feature(features.store, features.node_keys, features.edge_keys)
    fetched = fetched if runs_in is Placement.AUTO else fetched.changed(runs_in=runs_in)
    return FillData(fetched, features, transform, is_subgraph, as_edge_index)


class ToPyGData(Transform[Any], name="to_pyg_data", keeps_size=True, seeded=False):
    """Turns each mini-batch into a PyG `Data`, or a `HeteroData` if the graph has types: the last stage of a pipeline.

    It runs in workers. `MiniBatch.to_pyg_data` describes the attributes. Only `copy_to` and user-defined stages that
    derive from `Transform` can follow.
    """

    by_hop: bool = True
    """Whether edges are in the order of the hops, as in PyG's `NeighborLoader`, with `num_sampled_edges`; otherwise
    they are sorted by source and destination, which takes several times as long."""

    def __call__(self, minibatch: Any) -> Any:
        if not isinstance(minibatch, MiniBatch):
            raise TypeError(
                f"to_pyg_data() needs mini-batches, but got {kind_of(minibatch)}; name the members of the "
                "item set, and make each stage return a MiniBatch"
            )
        return fill_batch(minibatch, self.by_hop)


def to_edge_index(index: torch.Tensor, size: tuple[int, int]) -> Any:
    """Return edges, shape (2, E), as an `EdgeIndex` that shares their memory."""
    # A sampler's edges are sorted by destination. Sorted ones get an order and, below, pointers.
    orders = {"col": index[1], "row": index[0]}
    order = next((name for name, keys in orders.items() if not bool((keys[1:] < keys[:-1]).any())), None)
    made = import_pyg("torch_geometric", "as_edge_index").EdgeIndex(index, sparse_size=size, sort_order=order)
    return made if order is None else made.fill_cache_(no_transpose=True)
