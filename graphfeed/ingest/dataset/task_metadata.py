"""The tasks in `metadata.yaml`: their names, their sets of items and their numbers of classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfeed.ingest.dataset.split import PARTS
from graphfeed.storage.datasets import DatasetWriter, id_dtype, write_array
from graphfeed.storage.memory import map_npy

SETS = dict(zip(PARTS, ("train_set", "validation_set", "test_set"), strict=True))


def describe_tasks(
    described: Mapping[str | None, dict[str, Any]],
    domain: str,
    writer: DatasetWriter,
    in_memory: bool,
    reverses: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the entries of all tasks of a domain. Types whose items have the same members share a task.

    `reverses` has the reverse type of edge types, as tasks of their edges need it in `exclude_seed_edges`.
    """
    groups: dict[tuple[str, ...], dict[str | None, dict[str, Any]]] = {}
    for type_name, info in described.items():
        if parts := list(info["items"].values()):
            # Negatives add members only to the parts for validation and testing, which come last.
            groups.setdefault((task_name(domain, parts[0], writer.folder), *parts[-1]), {})[type_name] = info
    names = [name for name, *_ in groups]
    tasks = []
    for name, own in zip(names, groups.values(), strict=True):
        unique = name if names.count(name) == 1 else f"{name}:{','.join(map(str, own))}"
        entry = task_metadata(own, unique, writer, in_memory)
        known = {kind: reverses.get(kind or "") for kind in own}
        tasks.append(entry | ({"reverse_etypes": known} if any(known.values()) else {}))
    return tasks


def task_name(domain: str, files: Mapping[str, str], folder: Path) -> str:
    """Return the name of the task for items with these files."""
    if "labels" not in files:
        return "link_prediction" if domain == "edge" else "node_classification"
    return f"{domain}_{'regression' if map_npy(folder / files['labels']).dtype.kind == 'f' else 'classification'}"


def task_metadata(
    described: Mapping[str | None, dict[str, Any]], name: str, writer: DatasetWriter, in_memory: bool
) -> dict[str, Any]:
    """Return the entry of a task with the items of some types."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for part, key in SETS.items():
        for type_name, info in described.items():
            if part in info["items"]:
                data = [
                    {"name": item, "format": "numpy", "path": writer.path(file), "in_memory": in_memory}
                    for item, file in info["items"][part].items()
                ]
                for entry_of in data if part in info.get("offsets", {}) else ():
                    if entry_of["name"] == "destinations":
                        entry_of["offsets"] = writer.path(info["offsets"][part])
                group_size = info.get("group_sizes", {}).get(part)
                more = {} if group_size is None else {"group_size": group_size}
                sets.setdefault(key, []).append({"type": type_name, "data": data, **more})
    labelled = {type_name: info for type_name, info in described.items() if info["num_classes"]}
    entry: dict[str, Any] = {"name": name}
    if len(labelled) == 1:
        info = next(iter(labelled.values()))
        entry |= {"num_classes": info["num_classes"]} | ({"class_names": info["classes"]} if info["classes"] else {})
    elif labelled:
        entry["num_classes"] = {type_name: info["num_classes"] for type_name, info in labelled.items()}
        names = {type_name: info["classes"] for type_name, info in labelled.items() if info["classes"]}
        entry |= {"class_names": names} if names else {}
    return entry | sets


def narrow_seeds(folder: Path, *described: Mapping[Any, dict[str, Any]]) -> None:
    """Convert seeds to the dtype of the graph's ids, which is unknown before all nodes have been counted."""
    dtype = id_dtype(sum(info["count"] for info in described[0].values()), True)  # nodes are described first
    for info in (info for by_type in described for info in by_type.values()):
        for files in info["items"].values():
            path = folder / files["seeds"]
            seeds = map_npy(path)
            if seeds.dtype != dtype:
                narrow = path.with_suffix(".part")
                write_array(narrow, seeds, dtype)
                narrow.replace(path)
