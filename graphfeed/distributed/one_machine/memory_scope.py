"""Which ranks can open each other's shared memory, and its handles as JSON."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from graphfeed.storage.memory import FilePlace, Handle, Place, SharedBlock, find_places

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The same in all containers of a machine, and another one after each start of it."""
PROCESSES = Path("/proc/self/ns/pid")
"""Names the space of process ids: containers have their own, in which the ids of others' processes mean nothing."""
FILES = Path("/proc/self/ns/mnt")
"""Names the tree of mounted files."""


def memory_scope() -> str:
    """Return a text that is the same in two processes only if each can open the other's memory files and paths."""
    try:
        spaces = [os.readlink(path) for path in (PROCESSES, FILES)]
        return json.dumps([BOOT_ID.read_text().strip(), *spaces, os.geteuid()])
    except OSError:  # a system where that can't be known
        return ""


def write_handle(handle: Handle | FilePlace) -> torch.Tensor:
    # JSON rather than a pickle, as another process reads it.
    text = json.dumps({"in_file": isinstance(handle, FilePlace), **asdict(handle)})
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def open_handle(written: torch.Tensor) -> tuple[list[torch.Tensor], SharedBlock | None]:
    """Map the tensors of a handle; return them, and the block that has them unless that is a file."""
    # An OSError means that the memory can't be opened from here, a RuntimeError that the file has changed.
    fields: dict[str, Any] = json.loads(written.numpy().tobytes())
    if fields.pop("in_file"):
        shape, strides = tuple(fields.pop("shape")), tuple(fields.pop("strides"))
        return [FilePlace(**fields, shape=shape, strides=strides).open()], None
    places = [Place(place["offset"], tuple(place["shape"]), place["dtype"]) for place in fields["places"]]
    block = SharedBlock.open(Handle(**{**fields, "places": tuple(places)}))
    return block.tensors, block


def share(tensor: torch.Tensor) -> tuple[FilePlace | Handle, SharedBlock | None]:
    """Return a handle of a CPU tensor; unless it is mapped from a file, with the block that has a copy of it."""
    (place,) = find_places([tensor])
    if place is not None:
        return place, None
    block = SharedBlock.create([tensor])
    return block.handle, block  # the handle can be opened for as long as the block is kept
