"""Read and check the `metadata.yaml` of a dataset: GraphBolt's schema as dataclasses."""

import difflib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphfeed.ops.arguments import brief
from graphfeed.storage.datasets.bounded_yaml import load_yaml
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from graphfeed.storage.graph.type_names import has_ends

FILE_NAME = "metadata.yaml"
ARRAY_FORMATS = ("numpy", "torch")
EDGE_FORMATS = ("csv", "numpy", "torch")
SETS = ("train_set", "validation_set", "test_set")
GRAPH_TYPE = "FusedCSCSamplingGraph"
"""The only type of a preprocessed graph, in GraphBolt as well."""
NEARLY = 0.75
"""Similarity to a known key from which a key counts as a typo, by `difflib`: `in_memroy` has 0.89."""
REQUIRED = object()
IN_WORDS = {str: "a string", int: "an integer", bool: "true or false", dict: "a mapping", list: "a list"}


@dataclass(frozen=True)
class OnDiskNodes:
    """Number of nodes of a type."""

    num: int
    type: str | None = None


@dataclass(frozen=True)
class OnDiskEdges:
    """File of the edge list of a type."""

    key: str
    """Key in the metadata, such as "graph.edges[0]"."""
    format: str
    path: str
    type: str | None = None


@dataclass(frozen=True)
class OnDiskGraph:
    """A graph of edge lists. Types are in alphabetical order, which determines their numbers."""

    nodes: tuple[OnDiskNodes, ...]
    edges: tuple[OnDiskEdges, ...]
    feature_data: tuple[OnDiskFeatureData, ...]

    @property
    def num_nodes(self) -> dict[str | None, int]:
        """Number of nodes by type; the key is None in a graph without types."""
        return {nodes.type: nodes.num for nodes in self.nodes}


@dataclass(frozen=True)
class OnDiskTVTSetData:
    """File of one member of the items."""

    format: Literal["numpy", "torch"]
    path: str
    name: str | None = None
    in_memory: bool = True
    offsets: str | None = None
    """File of the offsets of lists, one per item, if the member has lists."""


@dataclass(frozen=True)
class OnDiskTVTSet:
    """Items of one type."""

    data: tuple[OnDiskTVTSetData, ...]
    type: str | None = None
    group_size: int = 1
    """Number of successive items that stay together in a mini-batch."""


@dataclass(frozen=True)
class OnDiskTaskData:
    """Items of a task and its metadata."""

    train_set: tuple[OnDiskTVTSet, ...] = ()
    validation_set: tuple[OnDiskTVTSet, ...] = ()
    test_set: tuple[OnDiskTVTSet, ...] = ()
    extra_fields: dict[str, Any] = field(default_factory=dict)
    """Metadata of the task: its name, the number of classes and anything else in the file."""


@dataclass(frozen=True)
class OnDiskMetaData:
    """Contents of a `metadata.yaml`."""

    dataset_name: str | None
    graph: OnDiskGraph | None
    feature_data: tuple[OnDiskFeatureData, ...]
    tasks: tuple[OnDiskTaskData, ...]


class Section:
    """A mapping in the file with its key, so that every error names the invalid key."""

    def __init__(self, value: Any, key: str = "", file: str = FILE_NAME) -> None:
        self.key, self.file = key, file
        if not isinstance(value, Mapping):
            raise ValueError(
                f"{self.file}: {key or 'the file'} must be a mapping of keys to values, but is {brief(value)}"
            )
        self.values = dict(value)
        self.read: set[str] = set()

    def name(self, key: str) -> str:
        """Return the full key of a value, such as "graph.nodes"."""
        return f"{self.key}.{key}" if self.key else key

    def get(self, key: str, wanted: type, default: Any = REQUIRED) -> Any:
        """Return a value of a type; null counts as missing."""
        # Every requested key is known, whether it exists or not. This is used to find typos.
        self.read.add(key)
        value = self.values.get(key)
        if value is None:
            if default is REQUIRED:
                raise ValueError(f"{self.file}: {self.name(key)} is missing; give {IN_WORDS[wanted]}")
            return default
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            hint = "; put it in quotes" if wanted is str else ""
            raise ValueError(f"{self.file}: {self.name(key)} must be {IN_WORDS[wanted]}, but is {brief(value)}{hint}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> Any:
        """Return a string, which must be one of the allowed ones."""
        value = self.get(key, str)
        if value not in allowed:
            raise ValueError(
                f"{self.file}: {self.name(key)} must be one of {', '.join(allowed)}, but is {brief(value)}"
            )
        return value

    def sections(self, key: str) -> list["Section"]:
        """Return the entries of a list; an empty list if it is missing."""
        return [
            Section(value, f"{self.name(key)}[{index}]", self.file)
            for index, value in enumerate(self.get(key, list, []))
        ]

    def rest(self) -> dict[str, Any]:
        """Return the values that were not read."""
        return {key: value for key, value in self.values.items() if key not in self.read}

    def extra_fields(self) -> dict[str, Any]:
        """Return the unread values as metadata, and warn about keys that look like a typo of a known key."""
        for key in self.rest():
            if close := self.close_to(key):
                message = f"{self.file}: {self.name(key)} is kept as metadata; is it a typo of {close}?"
                warnings.warn(message, stacklevel=2)
        return self.rest()

    def end(self) -> None:
        """Warn about the values that were not read."""
        for key in self.rest():
            typo = f"is it a typo of {close}?" if (close := self.close_to(key)) else "is it a typo?"
            warnings.warn(f"{self.file}: {self.name(key)} is unknown and ignored; {typo}", stacklevel=2)

    def close_to(self, key: str) -> str | None:
        """Return the known key that is most similar to another one, if any is similar enough."""
        # Typos rarely start with another letter, but words do: `dtype` is not `type`.
        known = [name for name in self.read if name not in self.values and name[0] == str(key)[:1]]
        return next(iter(difflib.get_close_matches(str(key), known, 1, NEARLY)), None)


def read_yaml(folder: Path, path: Path) -> dict[str, Any]:
    # Checks the whole path, because a link may lead out of the folder.
    return dict(Section(load_yaml(stay_inside(folder, str(path.relative_to(folder)), "its own path"))).values)


def stay_inside(folder: Path, path: str, key: str) -> Path:
    """Return the absolute path of a file in the metadata. Raises a ValueError if it is outside of the folder."""
    root = folder.resolve()
    target = (root / path).resolve()
    if not target.is_relative_to(root):
        raise ValueError(
            f"{FILE_NAME}: {key} is {brief(path)}, which leads to {target}, out of the dataset's folder {root}; "
            "put the file into the folder and give its path from there"
        )
    return target


def parse_metadata(data: Mapping[str, Any]) -> OnDiskMetaData:
    top = Section(data)
    topology = Section(top.get("graph_topology", dict, {}), "graph_topology")
    if "type" in topology.values:
        topology.choice("type", (GRAPH_TYPE,))
    # Keys of processed datasets, which other modules read.
    top.read.update(("include_original_edge_id", "auto_cast_to_optimal_dtype", "sources", "layout"))
    top.read.update(("checksums", "ids", "skipped", "time_unit"))
    # YAML reads a name such as 2024 as a number.
    name = top.values.get("dataset_name")
    top.read.add("dataset_name")
    graph = top.get("graph", dict, None)
    result = OnDiskMetaData(
        None if name is None else str(name),
        None if graph is None else parse_graph(Section(graph, "graph")),
        tuple(parse_feature(part, ("node", "edge", "graph")) for part in top.sections("feature_data")),
        tuple(parse_task(part) for part in top.sections("tasks")),
    )
    top.end()
    check_doubles("feature_data", [(part.domain, part.type, part.name) for part in result.feature_data])
    return result


def parse_graph(section: Section) -> OnDiskGraph:
    nodes = [OnDiskNodes(part.get("num", int), part.get("type", str, None)) for part in section.sections("nodes")]
    edges = [
        OnDiskEdges(part.key, part.choice("format", EDGE_FORMATS), part.get("path", str), part.get("type", str, None))
        for part in section.sections("edges")
    ]
    attributes = [parse_feature(part, ("node", "edge")) for part in section.sections("feature_data")]
    section.end()
    for part_name, parts in (("nodes", nodes), ("edges", edges)):
        if not parts:
            raise ValueError(f"{FILE_NAME}: graph.{part_name} is missing or empty; give at least one entry")
        check_doubles(f"graph.{part_name}", [part.type for part in parts])
    for index, part in enumerate(nodes):
        if part.num < 0:
            raise ValueError(f"{FILE_NAME}: graph.nodes[{index}].num must be 0 or more, but is {part.num}")
    check_metadata_types([part.type for part in nodes], edges)
    graph = OnDiskGraph(
        tuple(sorted(nodes, key=lambda part: part.type or "")),
        tuple(sorted(edges, key=lambda part: part.type or "")),
        tuple(attributes),
    )
    check_file_attributes(graph)
    return graph


def check_metadata_types(node_types: list[str | None], edges: list[OnDiskEdges]) -> None:
    types = [*node_types, *(part.type for part in edges)]
    # Only a graph with one entry each may be without types.
    if None in types:
        if types != [None, None]:
            raise ValueError(
                f"{FILE_NAME}: graph.nodes and graph.edges must all have a type, or be one entry each without; "
                f"the types are {node_types} and {[part.type for part in edges]}"
            )
        return
    for part in edges:
        if not has_ends(part.type or "", node_types):
            raise ValueError(
                f"{FILE_NAME}: {part.key}.type must be 'source:relation:destination' with types of graph.nodes, "
                f"{node_types}, but is {part.type!r}"
            )


def check_file_attributes(graph: OnDiskGraph) -> None:
    for domain, parts in (("node", graph.nodes), ("edge", graph.edges)):
        known = [part.type for part in parts]
        own = [part for part in graph.feature_data if part.domain == domain]
        check_doubles("graph.feature_data", [(part.domain, part.type, part.name) for part in own])
        for name in dict.fromkeys(part.name for part in own):
            types = [part.type for part in own if part.name == name]
            # Types may be missing if there is a default value, which depends on the arrays.
            if not set(types) <= set(known):
                raise ValueError(
                    f"{FILE_NAME}: graph.feature_data {name!r} of domain {domain} must have types of {known}, but "
                    f"has {types}; name types of the graph"
                )


def check_doubles(key: str, names: list[Any]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{FILE_NAME}: {key}[{index}] occurs twice ({name}); remove one")


def parse_feature(section: Section, domains: tuple[str, ...]) -> OnDiskFeatureData:
    return OnDiskFeatureData(
        domain=section.choice("domain", domains),
        type=section.get("type", str, None),
        name=section.get("name", str),
        format=section.choice("format", ARRAY_FORMATS),
        path=section.get("path", str),
        in_memory=section.get("in_memory", bool, True),
        extra_fields=section.extra_fields(),
    )


def parse_task(section: Section) -> OnDiskTaskData:
    sets = [tuple(map(parse_items, section.sections(part))) for part in SETS]
    for part, items in zip(SETS, sets, strict=True):
        types, names = [item.type for item in items], {tuple(one.name for one in item.data) for item in items}
        key = f"{FILE_NAME}: {section.name(part)}"
        # Several entries are distinguished by their types.
        if len(types) > 1 and (None in types or len(set(types)) < len(types)):
            raise ValueError(f"{key} has several entries, so each needs its own type; they have {types}")
        if len(names) > 1:
            raise ValueError(f"{key} must have the same names in every entry, but has {sorted(map(str, names))}")
    return OnDiskTaskData(sets[0], sets[1], sets[2], section.extra_fields())


def parse_items(section: Section) -> OnDiskTVTSet:
    items_type = section.get("type", str, None)
    data = []
    for part in section.sections("data"):
        data.append(
            OnDiskTVTSetData(
                part.choice("format", ARRAY_FORMATS),
                part.get("path", str),
                part.get("name", str, None),
                part.get("in_memory", bool, True),
                part.get("offsets", str, None),
            )
        )
        part.end()
    if not data:
        raise ValueError(f"{FILE_NAME}: {section.name('data')} is missing or empty; give at least one array")
    group_size = section.get("group_size", int, 1)
    if group_size < 1:
        raise ValueError(f"{FILE_NAME}: {section.name('group_size')} must be 1 or more, but is {group_size}")
    section.end()
    return OnDiskTVTSet(tuple(data), items_type, group_size)


def check_folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"Invalid dataset path: {path}; give the folder that has {FILE_NAME}")
    if not folder.is_dir():
        raise NotADirectoryError(f"The dataset must be a directory. But got {path}; give the folder of {FILE_NAME}")
    return folder.resolve()
