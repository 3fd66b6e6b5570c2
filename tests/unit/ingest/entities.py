"""Exports of small graphs as TFRecords, in several files, and the metadata for reading them."""

import gc
from pathlib import Path
from typing import Any

import torch

from graphfeed.ingest import FixedLenFeature, SerializedTFRecordInfo, write_tfrecords

SPEC = {
    "f": FixedLenFeature([2], torch.float32),
    "n": FixedLenFeature([], torch.int64),
    "y": FixedLenFeature([], torch.int64),
}


def shared_files() -> list[str]:
    """Return the open unnamed files of tensors of graphs, including those of earlier tests."""
    gc.collect()
    # Path.resolve instead of os.readlink, because the folder's own descriptor is closed by then.
    found = [str(file.resolve()) for file in Path("/proc/self/fd").iterdir()]
    return [name for name in found if name.startswith("/memfd:graphfeed")]


def nodes(count: int, first: int = 0) -> dict[str, torch.Tensor]:
    """Return columns that encode the ids of nodes."""
    ids = torch.arange(first, first + count)
    return {"id": ids, "f": torch.stack([ids / 2, ids / 4], 1), "n": ids * 3, "y": ids % 5}


def edges(count: int) -> dict[str, torch.Tensor]:
    """Return columns that encode the endpoints of edges."""
    source = torch.arange(count)
    return {"src": source, "dst": source * 7 % 11, "n": source * 10}


def export(folder: Path, columns: dict[str, torch.Tensor], num_files: int, **more: Any) -> SerializedTFRecordInfo:
    """Write an entity to files, every second one compressed, and return the metadata for reading all its features."""
    folder.mkdir(parents=True)
    rows = len(next(iter(columns.values())))
    for number, places in enumerate(torch.arange(rows).tensor_split(num_files)):
        ending = ".gz" if number % 2 else ""
        path = folder / f"{number:02}-of-{num_files:02}.tfrecord{ending}"
        part = {name: values[places] for name, values in columns.items()}
        write_tfrecords(path, part, "gzip" if ending else None)
    (folder / "_SUCCESS").touch()
    of_nodes = "id" in columns
    settings: dict[str, Any] = {
        "feature_keys": ["n", "f"] if of_nodes else ["n"],
        "feature_dim": 3 if of_nodes else 1,
        "entity_key": "id" if of_nodes else ("src", "dst"),
    }
    return SerializedTFRecordInfo(tfrecord_uri_prefix=str(folder), feature_spec=SPEC, **{**settings, **more})
