"""Folders with a `metadata.yaml`, small ones, for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

SOURCES = [3, 0, 1, 3, 2, 0]
DESTINATIONS = [2, 1, 0, 0, 2, 1]
"""Not in order, so that rows differ between the file and the graph."""
USERS, ITEMS = 4, 3
TYPED_EDGES: dict[str, list[list[int]]] = {
    "user:likes:item": [[3, 0, 1, 3], [2, 1, 2, 0]],
    "item:liked_by:user": [[2, 1, 0], [3, 0, 3]],
    "user:follows:user": [[0, 1, 2], [3, 3, 0]],
}


def save(folder: Path, name: str, values: Any) -> dict[str, str]:
    """Write values in the format of the name's suffix; return format and path as in the metadata."""
    path, array = folder / name, np.asarray(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
        return {"format": "numpy", "path": name}
    if path.suffix == ".pt":
        torch.save(torch.from_numpy(array), path)
        return {"format": "torch", "path": name}
    np.savetxt(path, array.T, fmt="%d", delimiter=",")
    return {"format": "csv", "path": name}


def write(folder: Path, data: dict[str, Any]) -> Path:
    """Write `metadata.yaml`; return the folder."""
    (folder / "metadata.yaml").write_text(yaml.safe_dump(data))
    return folder


def untyped(folder: Path, ending: str = "npy", edges: str = "npy") -> dict[str, Any]:
    """Write the files of an untyped graph; return its metadata. Weight and edge feature identify the edge's row."""
    rows = np.arange(len(SOURCES))
    return {
        "dataset_name": "small",
        "graph": {
            "nodes": [{"num": 4}],
            "edges": [save(folder, f"edges/all.{edges}", [SOURCES, DESTINATIONS])],
            "feature_data": [
                {"domain": "edge", "name": "weight", **save(folder, f"opt/weight.{ending}", rows + 10.0)},
                {"domain": "node", "name": "age", **save(folder, f"opt/age.{ending}", [7, 8, 9, 10])},
            ],
        },
        "feature_data": [
            {
                "domain": "node",
                "name": "feat",
                "num_categories": 5,
                **save(folder, f"feat.{ending}", np.arange(8.0).reshape(4, 2)),
            },
            {"domain": "edge", "name": "row", **save(folder, f"row.{ending}", rows)},
        ],
        "tasks": [
            {
                "name": "node_classification",
                "num_classes": 2,
                "train_set": [
                    {
                        "data": [
                            {"name": "seeds", **save(folder, f"set/train.{ending}", [0, 2])},
                            {"name": "labels", **save(folder, f"set/labels.{ending}", [1, 0])},
                        ]
                    }
                ],
                "test_set": [{"data": [{"name": "seeds", **save(folder, f"set/test.{ending}", [3])}]}],
            },
            {
                "name": "link_prediction",
                "train_set": [{"data": [{"name": "seeds", **save(folder, f"set/pairs.{ending}", [[0, 1], [3, 2]])}]}],
            },
        ],
    }


def typed(folder: Path, edges: str = "npy") -> dict[str, Any]:
    """Write the files of a graph with types; weights are 100 times the edge type's place here, plus the row."""
    lists, attributes, features = [], [], []
    for place, (kind, ends) in enumerate(TYPED_EDGES.items()):
        stem = kind.replace(":", "_")
        lists.append({"type": kind, **save(folder, f"{stem}.{edges}", ends)})
        weight = 100.0 * place + np.arange(len(ends[0]))
        spec = save(folder, f"weight_{stem}.npy", weight)
        attributes.append({"domain": "edge", "type": kind, "name": "weight", **spec})
        features.append({"domain": "edge", "type": kind, "name": "weight", **spec})
    counts = {"user": USERS, "item": ITEMS}
    for kind, count in counts.items():
        spec = save(folder, f"feat_{kind}.npy", np.arange(count)[:, None])
        features.append({"domain": "node", "type": kind, "name": "feat", **spec})
    return {
        "graph": {
            "nodes": [{"type": kind, "num": count} for kind, count in counts.items()],
            "edges": lists,
            "feature_data": attributes,
        },
        "feature_data": features,
        "tasks": [
            {
                "name": "typed",
                "train_set": [
                    {"type": kind, "data": [{"name": "seeds", **save(folder, f"{kind}.npy", np.arange(count))}]}
                    for kind, count in counts.items()
                ],
                "validation_set": [
                    {
                        "type": "user:likes:item",
                        "data": [{"name": "seeds", **save(folder, "likes.npy", [[3, 2], [0, 1]])}],
                    }
                ],
            }
        ],
    }


def change(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Set a value deep in the metadata, by a key such as "graph.edges.0.path"; return the metadata."""
    *above, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    place: Any = data
    for part in above:
        place = place[part]
    place[last] = value
    return data


def listing(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder, including hidden ones."""
    return sorted(path.name for path in folder.iterdir())


def arrays(folder: Path) -> dict[str, NDArray[Any]]:
    """Return all processed arrays by their path."""
    made = folder / "graphfeed"
    return {path.relative_to(made).as_posix(): np.load(path) for path in sorted(made.rglob("*.npy"))}
