"""Reads parts in the layout of `torch_geometric.distributed`, written by graphfeed's `Partitioner` or by PyG's."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.part_layout import FILE_NAME, check_identity
from graphfeed.ops.arguments import kind_of
from graphfeed.pyg.data import StoreEdges, make_graph
from graphfeed.storage import FeatureKey, TorchBasedFeature
from graphfeed.storage.datasets import check_file
from graphfeed.storage.features import StoreKey
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, first_ids, from_type_dict
from graphfeed.storage.memory import BROKEN, read_tensors

META, ORDER = "META.json", "order"
TIME, EDGE_TIME = "time", "edge_time"
BY_TYPE = "by type"
"""Value of `ids` in `META.json` if graphfeed's `Partitioner` wrote the folder."""
Features: TypeAlias = dict[StoreKey, TorchBasedFeature]


class PartEdges(NamedTuple):
    """The edges of one type in a part."""

    ends: torch.Tensor
    """Sources and destinations, shape (2, E)."""
    ids: torch.Tensor
    """Ids within the type."""
    order: torch.Tensor | None
    """Positions in the whole graph; None if the ids ascend with these."""
    size: tuple[int, int]
    """Number of sources and of destinations."""

    def in_order(self) -> torch.Tensor:
        keys = self.ids if self.order is None else self.order
        if keys.shape != self.ids.shape:
            raise ValueError(f"{ORDER} of edges must have shape {tuple(self.ids.shape)}, but has {tuple(keys.shape)}")
        return keys.argsort(stable=True)


NO_EDGES = PartEdges(
    torch.empty(2, 0, dtype=torch.int64, device="cpu"), torch.empty(0, dtype=torch.int64, device="cpu"), None, (0, 0)
)


class PyGLayout:
    """A folder in the layout of `torch_geometric.distributed`. Only tensors are unpickled."""

    @classmethod
    def find(cls, root: Path) -> "PyGLayout | None":
        # None for graphfeed's layout.
        return cls(root) if (root / META).is_file() and not (root / FILE_NAME).is_file() else None

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            meta = self.meta = json.loads((root / META).read_text(encoding="utf-8"))
            self.num_parts, self.typed = int(meta["num_parts"]), bool(meta["is_hetero"])
            self.node_types: list[str | None] = [None]
            self.edge_types: list[str | None] = [None]
            if self.typed:
                self.node_types = [str(node_type) for node_type in meta["node_types"]]
                self.edge_types = [":".join(edge_type) for edge_type in meta["edge_types"]]
            # In some files, PyG numbers edges and nodes across all types, but reads them by type.
            self.is_ours, self.identity = meta.get("ids") == BY_TYPE, str(meta.get("identity", ""))
            self.through_types = self.typed and not self.is_ours
            self.edge_time = str(meta.get(EDGE_TIME, EDGE_TIME))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{root / META} can't be read: {error}; write the partition again") from error
        self.node_maps = {node_type: self.read_map("node_map", node_type) for node_type in self.node_types}
        self.edge_maps = {edge_type: self.read_map("edge_map", edge_type) for edge_type in self.edge_types}

    def read_map(self, name: str, type_name: str | None) -> torch.Tensor:
        path = f"{name}.pt" if type_name is None else f"{name}/{type_name.replace(':', '__')}.pt"
        parts = self.read(path)
        if not isinstance(parts, torch.Tensor):
            raise ValueError(f"{path} in {self.root} must contain a tensor, but contains {kind_of(parts)}")
        return parts

    def read(self, name: str) -> Any:
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise ValueError(f"{self.root / META} names a type that leads to {path}, out of the folder")
        check_file(path, "root")
        # PyG writes features of edges as a defaultdict.
        return read_tensors(path, [(plain_dict, "collections.defaultdict"), dict])

    def read_part(self, part: int, name: str, type_names: list[str | None]) -> dict[str | None, Any]:
        """Return the content of a part's file by type."""
        # PyG's documentation uses `part0`, but its code writes `part_0`.
        folder = f"part_{part}" if (self.root / f"part_{part}").is_dir() else f"part{part}"
        content = self.read(f"{folder}/{name}")
        if not isinstance(content, dict):
            raise ValueError(f"a file of a part in {self.root} must contain a dict, but has {kind_of(content)}")
        if not self.typed:
            return {None: content}
        by_type = {":".join(name) if isinstance(name, tuple) else name: values for name, values in content.items()}
        return {name: by_type[name] for name in type_names if name in by_type}

    def read_features(self, part: int) -> dict[str, dict[str | None, Any]]:
        files = {"node": ("node_feats.pt", self.node_types), "edge": ("edge_feats.pt", self.edge_types)}
        return {domain: self.read_part(part, *file) for domain, file in files.items()}

    def read_edges(self, part: int) -> dict[str | None, PartEdges]:
        """Return the edges of a part by type; types without edges may be missing."""
        content = self.read_part(part, "graph.pt", self.edge_types)
        first, edges = 0, {}
        for edge_type in self.edge_types:
            if edge_type in content:
                file = content[edge_type]
                # PyG's class numbers edges across all types, type after type.
                ids, ends = file["edge_id"] - (first if self.through_types else 0), [file["row"], file["col"]]
                edges[edge_type] = PartEdges(torch.stack(ends), ids, file.get(ORDER), tuple(file["size"]))
            first += len(self.edge_maps[edge_type])
        return edges

    def open(self, part: int) -> tuple[GraphPart, Features, dict[FeatureKey, PartBook]]:
        """Return a part, the rows of its features in order of their ids, and the books with the owners of rows."""
        if not 0 <= part < self.num_parts:
            raise ValueError(f"part must be in 0 .. {self.num_parts - 1}, but is {part}")
        # PyG's class writes no identity.
        identity = check_identity(self.root, part, self.identity) if self.is_ours else ""
        try:
            feats = self.read_features(part)
            columns = self.columns(self.read_edges(part), feats)
            parts = torch.cat([self.node_maps[node_type] for node_type in self.node_types])
            counts = {edge_type: len(owners) for edge_type, owners in self.edge_maps.items()}
            book = PartBook.from_assignment(parts, self.num_parts)
            return (GraphPart(columns, book, part, from_type_dict(counts), identity), *self.features(part, feats))
        except BROKEN as error:
            raise ValueError(f"part {part} of {self.root} can't be read: {error}; write the partition again") from error

    def features(
        self, part: int, feats: Mapping[str, Mapping[str | None, Any]]
    ) -> tuple[Features, dict[FeatureKey, PartBook]]:
        """Return the rows of a part's features in order of their ids, and the books with the owners of rows."""
        features: Features = {}
        books: dict[FeatureKey, PartBook] = {}
        for domain, maps in (("node", self.node_maps), ("edge", self.edge_maps)):
            for type_name, file in feats[domain].items():
                ids = file.get("id", file.get("global_id"))
                book = PartBook.from_assignment(maps[type_name], self.num_parts)
                for name, rows in file.get("feats", {}).items():
                    if not isinstance(rows, torch.Tensor) or not isinstance(ids, torch.Tensor):
                        continue
                    key, order = FeatureKey(domain, type_name, str(name)), ids.argsort()
                    if len(rows) != len(ids) or not torch.equal(ids[order], book.ids_of(part)):
                        raise ValueError(f"feature {tuple(key)} must have one row for each {domain} of the part")
                    books[key] = book
                    # One-dimensional tensors become columns.
                    features[key] = TorchBasedFeature(rows[order] if rows.dim() > 1 else rows[order, None])
        return features, books

    def columns(
        self, edges: Mapping[str | None, PartEdges], feats: Mapping[str, Mapping[str | None, Any]]
    ) -> FusedCSCSamplingGraph:
        """Return the in-edges of a part's nodes, with timestamps and with one-dimensional edge attributes."""
        ids, lists = {}, {}
        attributes: dict[str, dict[str | None, torch.Tensor]] = {}
        for edge_type in self.edge_types:
            own = edges.get(edge_type, NO_EDGES)
            # Files may have edges sorted by time. In their order in the whole graph, the same edges are drawn.
            order = own.in_order()
            lists[edge_type], ids[edge_type] = StoreEdges(*own.ends[:, order]), own.ids[order]
            file = feats["edge"].get(edge_type, {})
            for name, values in {**file.get("feats", {}), self.edge_time: file.get(EDGE_TIME)}.items():
                if isinstance(values, torch.Tensor) and values.shape == order.shape:
                    attributes.setdefault(name, {})[edge_type] = values[order]
        for by_type in attributes.values():
            empty = next(iter(by_type.values()))[:0]
            by_type.update({edge_type: empty for edge_type in ids if not len(ids[edge_type])})
        # An attribute of a graph needs values for all types.
        edge_attributes = {name: by_type for name, by_type in attributes.items() if len(by_type) == len(ids)}
        times = {node_type: file[TIME] for node_type, file in feats["node"].items() if TIME in file}
        sizes = {node_type: len(parts) for node_type, parts in self.node_maps.items()}
        node_attributes = {TIME: times} if len(times) == len(sizes) else {}
        return make_graph(lists, sizes, node_attributes, {ORIGINAL_EDGE_ID: ids, **edge_attributes})


def meta_of(num_parts: int, num_nodes: int | dict[str, int], edge_types: Iterable[str]) -> dict[str, Any]:
    """Return the content of `META.json` for a partitioned graph."""
    typed = isinstance(num_nodes, dict)
    return {
        "num_parts": num_parts,
        "node_types": list(first_ids(num_nodes)) if typed else None,
        "edge_types": [edge_type.split(":") for edge_type in edge_types] if typed else None,
        "node_offset": list(first_ids(num_nodes).values()) if typed else None,
        "is_hetero": typed,
        "is_sorted": True,
    }


def plain_dict(default_factory: Any = None) -> dict[Any, Any]:
    # The factory that a file names is neither kept nor called.
    del default_factory
    return {}
