"""Reads parts in the layout of `torch_geometric.distributed`, written by our `Partitioner` or by PyG's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.source import EDGE_TIME, TIME
from graphfeed.pyg.data import EdgeList, make_graph
from graphfeed.storage import FeatureKey, TorchBasedFeature
from graphfeed.storage.datasets import check_file
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph
from graphfeed.storage.memory import BROKEN, read_tensors

META, ORDER = "META.json", "order"
BY_TYPE = "by type"
"""What `META.json` has in `ids` if our `Partitioner` wrote the folder."""
Features: TypeAlias = dict[tuple[str, str | None, str], TorchBasedFeature]


class PartEdges(NamedTuple):
    """The edges of one type in a part."""

    ends: torch.Tensor
    """Sources and destinations, shape (2, E)."""
    ids: torch.Tensor
    """Their ids within the type."""
    order: torch.Tensor | None
    """Their positions in the whole graph, where these are not in the order of the ids."""
    size: tuple[int, int]
    """The number of sources and of destinations."""

    def in_order(self) -> torch.Tensor:
        """Return by what index they come in the order of the whole graph."""
        keys = self.ids if self.order is None else self.order
        if keys.shape != self.ids.shape:
            raise ValueError(f"{ORDER} of edges must have shape {tuple(self.ids.shape)}, but has {tuple(keys.shape)}")
        return keys.argsort(stable=True)


NO_EDGES = PartEdges(torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), None, (0, 0))


class PyGLayout:
    """A folder in the layout of `torch_geometric.distributed`. Only tensors are unpickled.

    The in-edges of each node come in the order of the whole graph, also if the files have them by time, and so
    mini-batches are those of the whole graph. In what PyG's class wrote, this is the order of `edge_index`.

    Args:
        root: The folder.

    Raises:
        FileNotFoundError: A file of the folder is missing.
        ValueError: `META.json` does not describe such a folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            meta = json.loads((root / META).read_text(encoding="utf-8"))
            self.num_parts, self.typed = int(meta["num_parts"]), bool(meta["is_hetero"])
            self.node_types: list[str | None] = [str(kind) for kind in meta["node_types"]] if self.typed else [None]
            self.edge_types: list[str | None] = (
                [":".join(kind) for kind in meta["edge_types"]] if self.typed else [None]
            )
            self.ours = meta.get("ids") == BY_TYPE
            # PyG numbers edges and nodes through all types in some files, and reads them as if it did not.
            self.through_types = self.typed and not self.ours
            self.edge_time = str(meta.get(EDGE_TIME, EDGE_TIME))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{root / META} can't be read: {error}; write the partition again") from error
        self.node_maps = {kind: self.read_map("node_map", kind) for kind in self.node_types}
        self.edge_maps = {kind: self.read_map("edge_map", kind) for kind in self.edge_types}

    def read_map(self, name: str, kind: str | None) -> torch.Tensor:
        """Return the part of each node or edge of a type."""
        parts = read_file(self.inside(f"{name}.pt" if kind is None else f"{name}/{kind.replace(':', '__')}.pt"))
        if not isinstance(parts, torch.Tensor):
            raise ValueError(f"{name} of {kind!r} in {self.root} must be a tensor, but is a {type(parts).__name__}")
        return parts

    def inside(self, path: str) -> Path:
        """Return the path of a file, or raise if it leads out of the folder."""
        found = (self.root / path).resolve()
        if not found.is_relative_to(self.root.resolve()):
            raise ValueError(f"{self.root / META} names a type that leads to {found}, out of the folder")
        return found

    def part_file(self, part: int, name: str) -> Any:
        """Return the content of a part's file; PyG's documentation has `part0` where its code writes `part_0`."""
        folder = f"part_{part}" if (self.root / f"part_{part}").is_dir() else f"part{part}"
        return read_file(self.inside(f"{folder}/{name}"))

    def open(self, part: int) -> tuple[GraphPart, Features, dict[FeatureKey, PartBook]]:
        """Return a part, the rows of its features in the order of their ids, and which part owns which rows.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: There is no such part, or a file has something else.
        """
        if not 0 <= part < self.num_parts:
            raise ValueError(f"part must lie in 0 .. {self.num_parts - 1}, but is {part}")
        try:
            return self.read_part(part)
        except BROKEN as error:
            raise ValueError(f"part {part} of {self.root} can't be read: {error}; write the partition again") from error

    def read_part(self, part: int) -> tuple[GraphPart, Features, dict[FeatureKey, PartBook]]:
        """Return what `open` does; files with something else raise any of `BROKEN`."""
        node_feats = self.by_type(self.part_file(part, "node_feats.pt"), self.node_types)
        edge_feats = self.by_type(self.part_file(part, "edge_feats.pt"), self.edge_types)
        edges = self.read_edges(part)
        book = PartBook.from_assignment(torch.cat([self.node_maps[kind] for kind in self.node_types]), self.num_parts)
        counts = {kind: len(parts) for kind, parts in self.edge_maps.items()}
        num_edges: Any = counts if self.typed else counts[None]
        graph = GraphPart(self.columns(edges, node_feats, edge_feats), book, part, num_edges)
        features: Features = {}
        books: dict[FeatureKey, PartBook] = {}
        for domain, feats, maps in (("node", node_feats, self.node_maps), ("edge", edge_feats, self.edge_maps)):
            for kind, own in feats.items():
                ids = own.get("id", own.get("global_id"))
                owners = PartBook.from_assignment(maps[kind], self.num_parts)
                owned = owners.ids_of(part)
                for name, rows in own.get("feats", {}).items():
                    if isinstance(rows, torch.Tensor) and isinstance(ids, torch.Tensor):
                        key = FeatureKey(domain, kind, str(name))
                        books[key] = owners
                        features[key] = feature_of(key, rows, ids, owned)
        return graph, features, books

    def read_edges(self, part: int) -> dict[str | None, PartEdges]:
        """Return the edges of a part by type, of the types that it has."""
        content = self.by_type(self.part_file(part, "graph.pt"), self.edge_types)
        first, edges = 0, {}
        for kind in self.edge_types:
            if kind in content:
                own = content[kind]
                ids = own["edge_id"] - (first if self.through_types else 0)
                edges[kind] = PartEdges(torch.stack([own["row"], own["col"]]), ids, own.get(ORDER), tuple(own["size"]))
            first += len(self.edge_maps[kind])
        return edges

    def by_type(self, content: Any, kinds: list[str | None]) -> dict[str | None, Any]:
        """Return the content of a file by type."""
        if not isinstance(content, dict):
            raise ValueError(f"a file of a part in {self.root} must hold a dict, but holds a {type(content).__name__}")
        if not self.typed:
            return {None: content}
        named = {":".join(kind) if isinstance(kind, tuple) else kind: own for kind, own in content.items()}
        return {kind: named[kind] for kind in kinds if kind in named}

    def columns(
        self,
        edges: Mapping[str | None, PartEdges],
        node_feats: Mapping[str | None, Any],
        edge_feats: Mapping[str | None, Any],
    ) -> FusedCSCSamplingGraph:
        """Return the in-edges of a part's nodes, with times, and with attributes of one value for each edge."""
        sizes = {kind: len(parts) for kind, parts in self.node_maps.items()}
        ids, lists, orders = {}, {}, {}
        for kind in self.edge_types:
            own = edges.get(kind, NO_EDGES)
            order = orders[kind] = own.in_order()
            lists[kind] = EdgeList(*own.ends[:, order])
            ids[kind] = own.ids[order]
        times = {kind: own[TIME] for kind, own in node_feats.items() if TIME in own}
        node_attributes = {TIME: times} if set(times) == set(sizes) else {}
        edge_attributes = {ORIGINAL_EDGE_ID: ids, **self.edge_values(orders, ids, edge_feats)}
        return make_graph(lists, sizes, node_attributes, edge_attributes)

    def edge_values(
        self,
        orders: Mapping[str | None, Any],
        ids: Mapping[str | None, torch.Tensor],
        edge_feats: Mapping[str | None, Any],
    ) -> dict[str, dict[str | None, torch.Tensor]]:
        """Return the attributes that all edge types have, with one value for each edge."""
        attributes: dict[str, dict[str | None, torch.Tensor]] = {}
        for kind, own in edge_feats.items():
            for name, values in {**own.get("feats", {}), self.edge_time: own.get(EDGE_TIME)}.items():
                if isinstance(values, torch.Tensor) and values.dim() == 1 and len(values) == len(ids[kind]):
                    attributes.setdefault(name, {})[kind] = values[orders[kind]]
        for name, by_type in attributes.items():
            dtype = next(iter(by_type.values())).dtype
            empty = {kind: torch.empty(0, dtype=dtype) for kind, own in ids.items() if len(own) == 0}
            attributes[name] = {**empty, **by_type}
        return {name: by_type for name, by_type in attributes.items() if set(by_type) == set(ids)}


def feature_of(key: FeatureKey, rows: torch.Tensor, ids: torch.Tensor, owned: torch.Tensor) -> TorchBasedFeature:
    """Return the rows of a feature in the order of their ids; values become rows of one."""
    order = ids.argsort()
    if len(rows) != len(ids) or not torch.equal(ids[order], owned):
        raise ValueError(f"feature {tuple(key)} must have one row for each {key.domain} of the part; write it again")
    return TorchBasedFeature(rows[order] if rows.dim() > 1 else rows[order, None])


def read_file(path: Path) -> Any:
    """Return what `torch.save` wrote; PyG writes features of edges as a defaultdict."""
    check_file(path, "root")
    return read_tensors(path, [(plain_dict, "collections.defaultdict"), dict])


def plain_dict(default_factory: Any = None) -> dict[Any, Any]:
    """Return an empty dict in place of a defaultdict."""
    del default_factory
    return {}
