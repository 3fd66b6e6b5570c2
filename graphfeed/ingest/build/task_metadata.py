"""What `metadata.yaml` says of a task: its sets of items, and how many classes there are."""

from collections.abc import Mapping
from typing import Any

from graphfeed.ingest.build.spec import PARTS
from graphfeed.storage.datasets import PROCESSED

SETS = dict(zip(PARTS, ("train_set", "validation_set", "test_set"), strict=True))


def describe_task(described: Mapping[str | None, dict[str, Any]], name: str, in_memory: bool) -> dict[str, Any] | None:
    """Return the entry of a task with the items of all types, or None if there are none."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for part, key in SETS.items():
        for kind, own in described.items():
            if part in own["items"]:
                data = [
                    {"name": item, "format": "numpy", "path": f"{PROCESSED}/{file}", "in_memory": in_memory}
                    for item, file in own["items"][part].items()
                ]
                sets.setdefault(key, []).append({"type": kind, "data": data})
    if not sets:
        return None
    labelled = {kind: own for kind, own in described.items() if own["num_classes"]}
    entry: dict[str, Any] = {"name": name}
    if len(labelled) == 1:
        own = next(iter(labelled.values()))
        entry |= {"num_classes": own["num_classes"]} | ({"class_names": own["classes"]} if own["classes"] else {})
    elif labelled:
        entry["num_classes"] = {kind: own["num_classes"] for kind, own in labelled.items()}
        names = {kind: own["classes"] for kind, own in labelled.items() if own["classes"]}
        entry |= {"class_names": names} if names else {}
    return entry | sets
