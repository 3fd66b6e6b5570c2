"""Entities that threads read into unnamed shared memory, which other processes can map."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_storage_fd

from graphfeed.ingest.gigl.serialized_graph import SerializedTFRecordInfo
from graphfeed.ingest.gigl.tfrecord_data_loader import TFRecordDataLoader
from graphfeed.ops.process import as_they_end, in_one_step

Tensors = dict[Any, dict[str, torch.Tensor]]
"""Tensors by type and field."""


class SharedFile:
    """Unnamed memory, or an unlinked file, which processes map. It is freed with its last user."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None and hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("graphfeed", os.MFD_CLOEXEC)
        else:
            self.descriptor, path = tempfile.mkstemp(prefix="graphfeed-", dir=folder)
            os.unlink(path)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self.descriptor)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        # Torch treats this file as one received from a process, so it considers the tensor shared, too.
        storage = rebuild_storage_fd(torch.UntypedStorage, self, count * dtype.itemsize)  # type: ignore[no-untyped-call]
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape)  # type: ignore[call-overload, no-any-return]

    def detach(self) -> int:
        return os.dup(self.descriptor)  # the caller closes it


@dataclass
class Entity:
    """All types of an entity, which one thread reads one after another."""

    name: str
    infos: Mapping[Any, SerializedTFRecordInfo]
    weights: Mapping[Any, str] = field(default_factory=dict)
    """For each type, the feature with its weights."""

    def read(self, loader: TFRecordDataLoader, folder: Path | None, stopped: Event) -> Tensors:
        found: Tensors = {}
        for type_name, info in self.infos.items():
            files = {name: SharedFile(folder) for name in ("ids", "features", "labels", "packed", "weights")}
            descriptors = {name: file.descriptor for name, file in files.items()}
            tensors = loader.load(info, descriptors, self.weights.get(type_name), stopped)
            found[type_name] = {name: files[name].tensor(tuple(own.shape), own.dtype) for name, own in tensors.items()}
        return found


def read_entities(
    entities: Sequence[Entity], loader: TFRecordDataLoader, folder: Path | None, at_once: bool
) -> dict[str, Tensors]:
    """Read entities, and return the tensors of each by its name; they are in memory if there is no folder."""
    stopped = Event()
    with ThreadPoolExecutor(max(len(entities), 1) if at_once else 1) as threads:
        reading: dict[Future[Tensors], str] = {}
        try:
            for entity in entities:
                reading[in_one_step(threads.submit, entity.read, loader, folder, stopped)] = entity.name
            for one in as_they_end(reading):
                if one.exception():
                    break
        finally:
            # After a failure or Ctrl-C, this ends the other threads within a batch.
            stopped.set()
            threads.shutdown(cancel_futures=True)
    for one, name in reading.items():
        if not one.cancelled() and (error := one.exception()) and not isinstance(error, CancelledError):
            raise ValueError(f"loading failed for {name}: {error}") from error
    return {name: one.result() for one, name in reading.items()}
