"""Tells which processes can open each other's memory, and writes where tensors lie as text."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from graphfeed.storage.memory.mapped_file import FilePlace, FileState, find_places
from graphfeed.storage.memory.shared import Handle, Place, SharedBlock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The same in all containers of a machine, and another one after each start of it."""
PROCESSES = Path("/proc/self/ns/pid")
"""Names the space of process ids: containers have their own, in which the ids of others' processes mean nothing."""
FILES = Path("/proc/self/ns/mnt")
"""Names the tree of mounted files."""


def memory_scope() -> str:
    """Return a text that is the same in two processes only if each can open the other's memory files and paths.

    Empty on systems that don't tell.
    """
    try:
        spaces = [os.readlink(path) for path in (PROCESSES, FILES)]
        return json.dumps([BOOT_ID.read_text().strip(), *spaces, os.geteuid()])
    except OSError:
        return ""


def write_place(place: Handle | FilePlace) -> torch.Tensor:
    """Return a place as bytes, which go to another process."""
    text = json.dumps({"in_file": isinstance(place, FilePlace), "place": asdict(place)})
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def open_place(written: torch.Tensor) -> tuple[list[torch.Tensor], SharedBlock | None]:
    """Map the tensors at a place; return them, and the block that they lie in.

    Raises:
        OSError: The place can't be opened from here.
        RuntimeError: The file has changed.
    """
    content = json.loads(written.numpy().tobytes())
    place: dict[str, Any] = content["place"]
    if content["in_file"]:
        state = FileState(**place.pop("state"))
        shape, strides = tuple(place.pop("shape")), tuple(place.pop("strides"))
        return [FilePlace(state=state, shape=shape, strides=strides, **place).open()], None
    places = tuple(Place(own["offset"], tuple(own["shape"]), own["dtype"]) for own in place.pop("places"))
    block = SharedBlock.open(Handle(places=places, **place))
    return block.tensors, block


def share(tensor: torch.Tensor) -> tuple[FilePlace | Handle, SharedBlock | None]:
    """Return where other processes find a CPU tensor; unless it is mapped, with the block that has a copy of it.

    The tensor is found for as long as that block is kept.
    """
    (place,) = find_places([tensor])
    if place is not None:
        return place, None
    block = SharedBlock.create([tensor])
    return block.handle, block
