"""A graph in one file, to be mapped: a header of plain JSON, then the arrays; nothing in it is ever unpickled.

The file starts with the 16 bytes of `MAGIC` and, as eight little-endian bytes, the length of the JSON that follows. It
says where each array begins, counted from the first multiple of `ALIGNMENT` after it. The same file in the memory file
system is a graph that other processes open by name.
"""

import json
import mmap
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from graphfeed.ops.buffers import as_bytes
from graphfeed.ops.shared_memory import MemoryFile, SharedMemory
from graphfeed.storage.memory.shared import Place, SharedBlock, tensors_of

MAGIC = b"graphfeed graph\n"
VERSION = 1
ALIGNMENT = 4096
MOST_VALUES = 1 << 56
ARRAYS = ("csc_indptr", "indices", "node_type_offset", "type_per_edge")
ATTRIBUTES = ("node_attributes", "edge_attributes")
MAPS = ("node_type_to_id", "edge_type_to_id")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")

Fields = dict[str, Any]
"""The fields of a graph by name: tensors or None, dicts of tensors, and the dicts that number the types."""


def arrays_of(fields: Mapping[str, Any]) -> Iterator[tuple[str, str | None, torch.Tensor]]:
    """Yield each array of a graph with its field, and with its name if it is an attribute."""
    for field in ARRAYS:
        if fields[field] is not None:
            yield field, None, fields[field]
    for field in ATTRIBUTES:
        for name, values in fields[field].items():
            yield field, name, values


def round_up(count: int) -> int:
    """Return the next offset at which an array may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def write_fields(file: BinaryIO, fields: Mapping[str, Any]) -> None:
    """Write a graph."""
    entries, offsets, end = [], [], 0
    for field, name, values in arrays_of(fields):
        dtype = str(values.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TypeError(f"{field} {name or ''} is {values.dtype}, which a graph's file can't hold; convert it")
        entries.append({"field": field, "name": name, "dtype": dtype, "shape": list(values.shape), "offset": end})
        offsets.append(end)
        end = round_up(end + values.nbytes)
    header = json.dumps({"version": VERSION, "arrays": entries, **{name: fields[name] for name in MAPS}}).encode()
    file.write(MAGIC + len(header).to_bytes(8, "little") + header)
    begin = round_up(file.tell())
    for offset, (_, _, values) in zip(offsets, arrays_of(fields), strict=True):
        file.write(bytes(begin + offset - file.tell()))
        file.write(as_bytes(values.cpu()).data)
    file.write(bytes(begin + end - file.tell()))


def read_header(file: BinaryIO, path: Path) -> tuple[dict[str, Any], list[Place], int]:
    """Return what a graph's file says, where its arrays lie, and its size.

    Raises:
        ValueError: It is no such file, or not all of one.
    """
    size = os.fstat(file.fileno()).st_size
    start = file.read(len(MAGIC) + 8)
    if start[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path} is no graph that graphfeed wrote; give a file made by save()")
    length = int.from_bytes(start[len(MAGIC) :], "little")
    begin = round_up(len(start) + length)
    if begin > size:
        raise ValueError(f"{path} has {size} bytes, and its header alone should have {length}; write it again")
    try:
        header = json.loads(file.read(length))
        if header["version"] != VERSION:
            raise ValueError(f"it has version {header['version']}, and this release reads version {VERSION}")
        for name in MAPS:
            check_numbers(name, header[name])
        places = [place_of(entry, begin, size) for entry in header["arrays"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} has a header that can't be read: {error}; write it again") from error
    return header, places, size


def check_numbers(name: str, value: Any) -> None:
    """Raise unless a value is None or maps types to numbers."""
    if value is not None and not (isinstance(value, dict) and all(type(number) is int for number in value.values())):
        raise ValueError(f"{name} is {value}")


def place_of(entry: dict[str, Any], begin: int, size: int) -> Place:
    """Return where an array lies, or raise if that is outside of the file."""
    shape, offset, dtype = entry["shape"], entry["offset"], entry["dtype"]
    if entry["field"] not in ARRAYS + ATTRIBUTES or (entry["field"] in ATTRIBUTES) != isinstance(entry["name"], str):
        raise ValueError(f"there is no field {entry['field']} {entry['name']}")
    if dtype not in DTYPES or not all(type(count) is int and count >= 0 for count in [offset, *shape]):
        raise ValueError(f"{entry['field']} is {dtype} of shape {shape} at {offset}")
    end = begin + offset + int(np.prod(shape, dtype=object)) * getattr(torch, dtype).itemsize
    # If one dimension is 0, the others are bounded by what torch can multiply.
    if offset % ALIGNMENT or end > size or int(np.prod([max(count, 1) for count in shape], dtype=object)) > MOST_VALUES:
        raise ValueError(f"{entry['field']} ends at {end}, the file at {size}")
    return Place(begin + offset, tuple(shape), dtype)


def assemble(header: Mapping[str, Any], tensors: list[torch.Tensor]) -> Fields:
    """Return the fields of a graph from its header and its arrays."""
    maps = {name: header[name] for name in MAPS}
    fields: Fields = {**dict.fromkeys(ARRAYS), **maps, **{name: {} for name in ATTRIBUTES}}
    for entry, values in zip(header["arrays"], tensors, strict=True):
        if entry["field"] in ARRAYS:
            fields[entry["field"]] = values
        else:
            fields[entry["field"]][entry["name"]] = values
    for name in ARRAYS[:2]:
        if fields[name] is None:
            raise ValueError(f"the file of a graph must hold {name}, but doesn't; write it again")
    return fields


def save_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a graph to a file atomically: it replaces an old file as a whole, or not at all."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            write_fields(file, fields)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def map_fields(path: Path) -> Fields:
    """Map the file of a graph; writes to its tensors stay in this process."""
    with path.open("rb") as file:
        header, places, size = read_header(file, path)
        return assemble(header, tensors_of(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY), places))


def name_to_path(name: str) -> Path:
    """Return the path of a graph in the memory file system, or in the temporary folder if there is none.

    Raises:
        ValueError: The name can't be that of a file.
    """
    if not re.fullmatch(r"[\w.+-]{1,200}", name):
        raise ValueError(f"name must be 1 to 200 letters, digits or any of '_.+-', but is {name!r}")
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"graphfeed.{name}"


def publish(name: str, fields: Mapping[str, Any]) -> Path:
    """Write a graph to shared memory; it gets its name when it is complete.

    Raises:
        FileExistsError: The name is taken.
    """
    path = name_to_path(name)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=partial(os.open, mode=0o600)) as file:
            write_fields(file, fields)
        os.link(part, path)
    except FileExistsError as error:
        raise FileExistsError(
            f"there is a graph {name!r} in shared memory already; choose another name, or remove {path} if the process "
            "that made it was killed"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def open_shared(name: str) -> Fields:
    """Map a graph in shared memory; a write to its tensors is visible to all processes.

    Raises:
        FileNotFoundError: There is no graph of that name.
    """
    path = name_to_path(name)
    try:
        memory = MemoryFile(os.open(path, os.O_RDWR))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no graph {name!r} in shared memory; it lives as long as the graph that copy_to_shared_memory "
            "returned, in the process that called it"
        ) from error
    with open(memory.descriptor, "rb", closefd=False) as file:
        header, places, size = read_header(file, path)
    return assemble(header, SharedBlock(SharedMemory.open(memory, str(path), size), places).tensors)


def unpublish(path: Path, owner: int, inode: int) -> None:
    """Remove a name, if this very process gave it (not its parent) and it still refers to the same graph."""
    if os.getpid() == owner and path.exists() and path.stat().st_ino == inode:
        path.unlink()
