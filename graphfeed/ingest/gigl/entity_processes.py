"""Processes that each read the files of an entity into memory which this process maps."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_storage_fd

from graphfeed.ingest.gigl.serialized_graph import SerializedTFRecordInfo
from graphfeed.ingest.gigl.tfrecord_data_loader import TFRecordDataLoader
from graphfeed.loader.executors import GUARD_ADVICE, NO_GUARD, PREFIX, Imported, check_main_module, describe_exit

FIELDS = ("ids", "features", "labels", "packed", "weights")
EXIT_SECONDS = 30.0
"""How long a process may take to exit after it has sent its result."""
Tensors = dict[Any, dict[str, torch.Tensor]]
"""Tensors by type and field."""
Shapes = dict[Any, dict[str, tuple[tuple[int, ...], torch.dtype]]]
"""Their shapes and dtypes."""


class SharedFile:
    """Memory without a name, or a file that has lost its name, which processes map. It is gone with its last user."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None and hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("graphfeed", os.MFD_CLOEXEC)
        else:
            self.descriptor, path = tempfile.mkstemp(prefix="graphfeed-", dir=folder)
            os.unlink(path)

    def __reduce__(self) -> tuple[Any, ...]:
        # It goes to a process that is being started, as a copy of the descriptor.
        return reopen, (DupFd(self.descriptor),)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self.descriptor)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        # Torch takes this file for one that was sent, so that the tensor is in shared memory in its sense, too.
        storage = rebuild_storage_fd(torch.UntypedStorage, self, count * dtype.itemsize)  # type: ignore[no-untyped-call]
        return torch.empty(0, dtype=dtype).set_(storage, 0, shape)  # type: ignore[call-overload, no-any-return]

    def detach(self) -> int:
        return os.dup(self.descriptor)  # its taker closes it


def reopen(duplicate: Any) -> SharedFile:
    file = object.__new__(SharedFile)
    file.descriptor = duplicate.detach()
    return file


@dataclass
class Entity:
    """What one process reads: all types of an entity, one after the other."""

    name: str
    infos: Mapping[Any, SerializedTFRecordInfo]
    weights: Mapping[Any, str] = field(default_factory=dict)
    """The feature of each type that is its weights."""
    files: dict[Any, dict[str, SharedFile]] = field(default_factory=dict)


class EntityProcess:
    """A process that reads an entity."""

    def __init__(self, entity: Entity, loader: TFRecordDataLoader, folder: Path | None) -> None:
        self.entity = entity
        entity.files = {type_name: {name: SharedFile(folder) for name in FIELDS} for type_name in entity.infos}
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("spawn").Process(
            target=run_entity, args=(entity, loader, sender), name=f"{PREFIX}{entity.name}", daemon=True
        )
        try:
            self.process.start()
        finally:
            sender.close()  # so that the pipe ends with the process

    def result(self) -> tuple[Shapes | None, str]:
        """Wait for the process, and return the shapes of what it read, or why it read nothing."""
        try:
            shapes, text = self.receiver.recv()
        except (EOFError, OSError):
            shapes, text = None, ""
        self.process.join(EXIT_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return shapes, text or ("" if shapes is not None else self.exit_reason())

    def exit_reason(self) -> str:
        if self.process.exitcode == NO_GUARD:
            return GUARD_ADVICE
        how = describe_exit(self.process.exitcode)
        hint = "; the machine may have run out of memory" if how.endswith(("SIGKILL", "SIGBUS")) else ""
        return f"its process {how}{hint}"

    def tensors(self, shapes: Shapes) -> Tensors:
        return {
            type_name: {name: self.entity.files[type_name][name].tensor(*spec) for name, spec in fields.items()}
            for type_name, fields in shapes.items()
        }

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.receiver.close()


def run_entity(entity: Entity, loader: TFRecordDataLoader, sender: Connection) -> None:
    """Read an entity in a process that was started for it, and send the shapes of its tensors, or what went wrong."""
    Imported.done = True
    torch.set_num_threads(1)
    try:
        shapes: Shapes = {}
        for type_name, info in entity.infos.items():
            files = {name: file.descriptor for name, file in entity.files[type_name].items()}
            tensors = loader.load(info, files, entity.weights.get(type_name))
            shapes[type_name] = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    except BaseException:
        sender.send((None, traceback.format_exc()))
    else:
        sender.send((shapes, ""))


def read_entities(
    entities: Sequence[Entity], loader: TFRecordDataLoader, folder: Path | None, at_once: bool
) -> dict[str, Tensors]:
    """Read entities in processes, and return the tensors of each by its name; they lie in memory without a folder."""
    check_main_module("spawn")
    if multiprocessing.current_process().daemon:
        raise RuntimeError(
            "a process that is a daemon, such as a worker of torch's DataLoader, can't start processes; read the graph "
            "in the main process"
        )
    loaded: dict[str, Tensors] = {}
    waves = [list(entities)] if at_once else [[entity] for entity in entities]
    for wave in waves:
        running: list[EntityProcess] = []
        try:
            running.extend(EntityProcess(entity, loader, folder) for entity in wave)
            collect(running, loaded)
        finally:
            for process in running:
                process.stop()
    return loaded


def collect(running: Sequence[EntityProcess], loaded: dict[str, Tensors]) -> None:
    """Take the results of processes as they come, until all are there or one has failed."""
    left = {process.receiver: process for process in running}
    while left:
        failed = {}
        # A pipe is ready with a result, and also once the process that it leads to is gone.
        for receiver in wait(list(left)):
            process = left.pop(receiver)  # type: ignore[call-overload]
            shapes, text = process.result()
            if shapes is None:
                failed[process.entity.name] = text
            else:
                loaded[process.entity.name] = process.tensors(shapes)
        if failed:
            reasons = "\n".join(f"{name}: {text}" for name, text in failed.items())
            raise ValueError(f"loading failed for {', '.join(failed)}\n{reasons}")
