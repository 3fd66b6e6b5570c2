"""A dataset in a folder of files, in GraphBolt's layout: a graph, features and tasks."""

import copy
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import torch

from graphfeed.ops.arguments import checked
from graphfeed.storage.datasets.dataset_writer import PROCESSED
from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet, Task, members_of
from graphfeed.storage.datasets.metadata import (
    FILE_NAME,
    SETS,
    Section,
    check_folder,
    parse_metadata,
    read_yaml,
    stay_inside,
)
from graphfeed.storage.datasets.metadata_edits import apply_edits
from graphfeed.storage.datasets.original_ids import OriginalIds, read_ids
from graphfeed.storage.datasets.preprocess import name_files, preprocess_ondisk_dataset
from graphfeed.storage.datasets.processed_arrays import inside, open_items
from graphfeed.storage.datasets.processed_graph import open_graph
from graphfeed.storage.features.feature_store import FeatureStore
from graphfeed.storage.features.torch_based_feature_store import TorchBasedFeatureStore
from graphfeed.storage.graph.files.load_graph import load_graph
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.type_names import NodeType, to_type_dict
from graphfeed.storage.memory.tensor_repr import indent_continuation, shapes_repr

BY_GRAPHBOLT = "preprocessed"


class OnDiskTask(Task):
    """A task of a dataset in files: its metadata, such as the number of classes, and the items of its sets."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        train_set: ItemSet | HeteroItemSet | None,
        validation_set: ItemSet | HeteroItemSet | None,
        test_set: ItemSet | HeteroItemSet | None,
    ) -> None:
        self._metadata = dict(metadata)
        self._sets = train_set, validation_set, test_set

    @property
    def metadata(self) -> dict[str, Any]:
        """All information about the task, such as its name and the number of classes."""
        return self._metadata

    @property
    def train_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to train on; None if there are none."""
        return self._sets[0]

    @property
    def validation_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to validate on; None if there are none."""
        return self._sets[1]

    @property
    def test_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to test on; None if there are none."""
        return self._sets[2]

    def __repr__(self) -> str:
        names = ("validation_set", "train_set", "test_set", "metadata")
        lines = "\n".join(f"{name}={getattr(self, name)!r}," for name in names)
        return f"OnDiskTask({indent_continuation(lines, len('OnDiskTask('))})"

    def __str__(self) -> str:
        """Return the dtypes and shapes of the item sets, and the metadata; `repr` has the values."""
        sets = ("train_set", "validation_set", "test_set")
        shown = {name: members_of(getattr(self, name)) for name in sets}
        return shapes_repr(type(self).__name__, {**shown, "metadata": self.metadata})


class Tasks(list[OnDiskTask]):
    """A list of tasks, printed with the shapes of each task."""

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self))}]"


class OnDiskDataset:
    """A dataset in a folder with GraphBolt's `metadata.yaml`. Nothing is preprocessed or loaded before `load()`.

    The file `metadata.yaml` names the other files: edge lists (CSV, numpy or torch), the attributes that sampling uses,
    features and item sets (numpy or torch). All files must be in the folder, and no objects are unpickled. A folder
    with only GraphBolt's preprocessed files is read directly. If its graph has edge attributes, it needs the original
    edge ids as well.

    Args:
        path: The folder.
        include_original_edge_id, force_preprocess, auto_cast_to_optimal_dtype: As for `preprocess_ondisk_dataset`.

    Raises:
        FileNotFoundError: The folder does not exist, or has no `metadata.yaml`.
        ValueError: A key of `metadata.yaml` is invalid.

    Example:
        >>> dataset = OnDiskDataset("datasets/cora").load()  # doctest: +SKIP
        >>> graph, features, task = dataset.graph, dataset.feature, dataset.tasks[0]  # doctest: +SKIP
        >>> items = task.train_set, task.validation_set, task.test_set  # doctest: +SKIP
    """

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
        include_original_edge_id: bool = False,
        force_preprocess: bool | None = None,
        auto_cast_to_optimal_dtype: bool = True,
    ) -> None:
        self._folder = check_folder(path)
        self._options = include_original_edge_id, force_preprocess, auto_cast_to_optimal_dtype
        self._yaml_data = read_yaml(self._folder, find_metadata(self._folder))
        self._metadata = parse_metadata(self._yaml_data)
        # Compared with `yaml_data`; without the keys that preprocessing doesn't copy from the source.
        self._source = copy.deepcopy(self._yaml_data)
        if "graph" in self._source:
            self._source.pop("graph_topology", None)
        self._tasks = Tasks()
        self._feature: FeatureStore | None = None
        self._graph: FusedCSCSamplingGraph | None = None
        self._ids: dict[NodeType, OriginalIds] = {}
        self._no_graph: ValueError | None = None

    def load(self, tasks: str | list[str] | None = None) -> Self:
        """Preprocess the files if needed, and load the graph, features and tasks. A second call loads them again.

        Args:
            tasks: The names of the tasks to load; all if None. Other tasks are skipped with a warning.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is invalid.
        """
        chosen = [tasks] if isinstance(tasks, str) else tasks
        if chosen is not None and not isinstance(chosen, list):
            raise TypeError(f"The type of selected_task should be list, but got {type(chosen).__name__}; give names")
        source = read_yaml(self._folder, self._prepare())
        parse_metadata(source)  # before it is used: an edited file may have any values
        processed = apply_edits(self._source, self._yaml_data, source)
        metadata = parse_metadata(processed)
        top = Section(processed)
        topology = top.get("graph_topology", dict, None)
        self._load_graph(topology, has_layout="layout" in processed)
        whole = bool((topology or {}).get("in_memory", True))
        self._ids = {
            node_type or None: read_ids(self._folder, files, f"ids.{node_type}", whole)
            for node_type, files in top.get("ids", dict, {}).items()
        }
        self._feature = TorchBasedFeatureStore(inside(self._folder, metadata.feature_data))
        self._tasks = Tasks(
            OnDiskTask(
                task.extra_fields,
                *(open_items(self._folder, getattr(task, part), f"tasks[{index}].{part}") for part in SETS),
            )
            for index, task in enumerate(metadata.tasks)
            if chosen is None or task.extra_fields.get("name") in chosen
        )
        missing = set(chosen or ()) - {task.extra_fields.get("name") for task in metadata.tasks}
        if missing:
            warnings.warn(f"Below tasks are not found in YAML: {sorted(missing)}. Skipped.", stacklevel=2)
        self._source, self._yaml_data, self._metadata = source, copy.deepcopy(processed), metadata
        return self

    def _load_graph(self, topology: dict[str, Any] | None, *, has_layout: bool) -> None:
        self._graph, self._no_graph = None, None
        if topology is None:
            return
        if has_layout:
            self._graph = open_graph(self._folder, topology)
            return
        # Any other folder, such as GraphBolt's, names a saved graph. Features and tasks can be used without it.
        try:
            self._graph = load_saved_graph(self._folder, topology)
        except ValueError as error:
            self._no_graph = error

    def _prepare(self) -> Path:
        include, force, auto_cast = self._options
        source, by_graphbolt = self._folder / FILE_NAME, self._folder / BY_GRAPHBOLT / FILE_NAME
        data = read_yaml(self._folder, source) if source.is_file() else None
        if data is not None and "graph" not in data and Section(data).get("graph_topology", dict, {}).get("path"):
            return source  # it names files that are already preprocessed
        # GraphBolt preprocessed it, and its source files are gone: only GraphBolt's files remain.
        if by_graphbolt.is_file() and not (self._folder / PROCESSED / FILE_NAME).is_file():
            named = name_files(parse_metadata(data)) if data is not None else {"": FILE_NAME}
            if not all((self._folder / path).is_file() for path in named.values()):
                return by_graphbolt
        return Path(preprocess_ondisk_dataset(self._folder, include, force, auto_cast))

    @property
    def yaml_data(self) -> dict[str, Any]:
        """Contents of `metadata.yaml`; after `load()`, of the preprocessed one.

        `load()` applies edits of it: names, the metadata of tasks, features that are removed or added, and `path` and
        `in_memory` of an entry, which decides whether it stays on disk. The graph is mapped rather than read into
        memory if `graph_topology` is `{"in_memory": False}`. Only `graph` can't be edited here.
        """
        return self._yaml_data

    @property
    def dataset_name(self) -> str | None:
        """Name of the dataset in `metadata.yaml`."""
        return self._metadata.dataset_name

    @property
    def tasks(self) -> list[OnDiskTask]:
        """The tasks, in the order of `metadata.yaml`."""
        self._check_loaded()
        return self._tasks

    @property
    def feature(self) -> FeatureStore:
        """The features."""
        self._check_loaded()
        assert self._feature is not None
        return self._feature

    @property
    def graph(self) -> FusedCSCSamplingGraph | Any:
        """The graph; None if `metadata.yaml` has none."""
        self._check_loaded()
        if self._no_graph is not None:
            raise self._no_graph
        return self._graph

    def ids(self, type: str | None = None) -> OriginalIds:
        """Return the ids that the nodes of a type had in the tables from which `graphfeed.ingest` built the dataset.

        Nodes without such ids have their numbers.

        Args:
            type: The node type; None in a graph without types.

        Raises:
            KeyError: There is no such node type.
            RuntimeError: The dataset is not loaded yet.
        """
        self._check_loaded()
        type = type or None
        if type in self._ids:
            return self._ids[type]
        counts = {} if self.graph is None else to_type_dict(self.graph.num_nodes)
        if type not in counts:
            types = "the graph has no types; leave it out" if None in counts else f"the types are {sorted(counts)}"
            raise KeyError(f"there is no node type {type!r}; {types}")
        # Without other ids, a node's original id is its id in the graph.
        return OriginalIds(range(counts[type]))

    @property
    def all_nodes_set(self) -> ItemSet | HeteroItemSet | Any:
        """All nodes as seeds, for inference. Without a graph this is None, with a warning."""
        graph = self.graph
        if graph is None:
            warnings.warn("all_nodes_set is None because the dataset has no graph", stacklevel=2)
            return None
        counts, dtype = graph.num_nodes, graph.indices.dtype
        if isinstance(counts, int):
            # Unlike an array of ids, a number of items takes no memory.
            return ItemSet(torch.tensor(counts, dtype=dtype, device="cpu"), names="seeds")
        sets = {
            node_type: ItemSet(torch.tensor(count, dtype=dtype, device="cpu"), names="seeds")
            for node_type, count in counts.items()
        }
        return HeteroItemSet(sets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._folder)!r})"

    def _check_loaded(self) -> None:
        if self._feature is None:
            raise RuntimeError(f"{self!r} is not loaded yet; call its load() first")


def open_in_files(path: str | os.PathLike[str]) -> OnDiskDataset:
    """Return a dataset that is not loaded yet, and whose graph, features and items will stay in their files."""
    dataset = OnDiskDataset(path)
    # Features in torch's format can't stay in files, except those that are going to be converted.
    torch_files = "torch" if "graph" not in dataset.yaml_data else None
    for entry in dataset.yaml_data.get("feature_data") or ():
        entry["in_memory"] = entry["format"] == torch_files
    tasks = dataset.yaml_data.get("tasks") or ()
    for items in chain(*(task.get(part) or () for task in tasks for part in SETS)):
        for member in items["data"]:
            member["in_memory"] = False
    topology = dataset.yaml_data.get("graph_topology") or {}
    dataset.yaml_data["graph_topology"] = {**topology, "in_memory": False}
    return dataset


def load_saved_graph(folder: Path, topology: Mapping[str, Any]) -> FusedCSCSamplingGraph:
    again = f"preprocess again from the source: {folder / FILE_NAME} with its graph, and the files that it names"
    if "path" not in topology:
        raise ValueError(f"graph_topology has no path, but {list(topology)}; {again}")
    path = stay_inside(folder, str(topology["path"]), "graph_topology.path")
    try:
        return load_graph(path)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{FILE_NAME}: graph_topology.path: {error}; {again}") from error


def find_metadata(folder: Path) -> Path:
    """Return the path of the metadata to start from: the source's, or else that of the preprocessed files."""
    for candidate in (folder, folder / PROCESSED, folder / BY_GRAPHBOLT):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    raise FileNotFoundError(f"{FILE_NAME} does not exist in {folder}; give the folder that has it")


@checked
@dataclass(frozen=True)
class Dataset:
    """A graph, its features, and the items to train, validate and test on.

    Attributes:
        name: Name of the data set.
        graph: The graph.
        feature: The features of its nodes and edges.
        train_set: Items to train on.
        validation_set: Items to validate on.
        test_set: Items to test on.
        all_nodes_set: All nodes as seeds, for inference.
        metadata: Properties of the task, such as the number of classes.
    """

    name: str
    graph: FusedCSCSamplingGraph
    feature: FeatureStore
    train_set: ItemSet | HeteroItemSet
    validation_set: ItemSet | HeteroItemSet
    test_set: ItemSet | HeteroItemSet
    all_nodes_set: ItemSet | HeteroItemSet
    metadata: Mapping[str, Any]

    def __repr__(self) -> str:
        sets = ("train_set", "validation_set", "test_set", "all_nodes_set")
        shown = {**vars(self), **{name: members_of(getattr(self, name)) for name in sets}}
        return shapes_repr(type(self).__name__, {**shown, "metadata": sorted(self.metadata)})

    @property
    def dataset_name(self) -> str:
        """The name; an `OnDiskDataset` has this property too."""
        return self.name

    @property
    def tasks(self) -> list[OnDiskTask]:
        """The only task; an `OnDiskDataset` has this property too."""
        return Tasks([OnDiskTask(dict(self.metadata), self.train_set, self.validation_set, self.test_set)])
