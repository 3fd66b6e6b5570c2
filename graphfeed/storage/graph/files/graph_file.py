"""Format of a graph in a single file that can be mapped: a JSON header, then the arrays. Nothing is ever unpickled.

The file starts with the 16 bytes of `MAGIC` and the length of the JSON header in eight little-endian bytes. The header
has the offset of each array, relative to the first multiple of `ALIGNMENT` after the header, and a checksum of itself
and of all bytes after it. The same file in the memory file system is a graph that other processes open by name.
"""

import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from graphfeed.ops.memory import MemoryFile, SharedMemory, as_bytes, map_file
from graphfeed.ops.process import regular_file
from graphfeed.storage.memory.new_file import has_stamp, new_file, new_stamp
from graphfeed.storage.memory.shared import Place, SharedBlock, tensors_of
from graphfeed.storage.memory.tensor_codec import DTYPE_NAMES, describe_tensors, plan_frame, read_specs
from graphfeed.storage.memory.tensor_tree import tensors_in

MAGIC = b"graphfeed graph\n"
VERSION = 1
ALIGNMENT = 4096
ARRAYS = ("csc_indptr", "indices", "node_type_offset", "type_per_edge")
MAPS = ("node_type_to_id", "edge_type_to_id")
ATTRIBUTES = ("node_attributes", "edge_attributes")
CHECKSUM, STAMP = "checksum", "written"
BLOCK_BYTES = 1 << 22
"""Number of bytes read at a time to verify a file."""

Fields = dict[str, Any]
"""Fields of a graph by name: tensors or None, dicts of tensors, and dicts with the numbers of types."""


class Header(NamedTuple):
    """The header of a graph's file."""

    content: dict[str, Any]
    places: dict[str, Place]
    """Locations of the arrays in the file, by "field" or "field/name"."""
    size: int
    """Size of the file in bytes."""

    def fields(self, tensors: Iterable[torch.Tensor]) -> Fields:
        fields: Fields = {**dict.fromkeys(ARRAYS), **{name: self.content[name] for name in MAPS}}
        fields |= {name: {} for name in ATTRIBUTES}
        for path, values in zip(self.places, tensors, strict=True):
            field, slash, name = path.partition("/")
            (fields[field] if slash else fields)[name if slash else field] = values
        return fields


def write_fields(file: BinaryIO, fields: Mapping[str, Any], stamp: int | None = None) -> None:
    """Write a graph. With a stamp, also write a checksum, which takes another pass over the arrays."""
    tensors = {name: fields[name] for name in ARRAYS if fields[name] is not None}
    # The name of an attribute may have slashes: only the first slash separates.
    tensors |= {f"{field}/{name}": values for field in ATTRIBUTES for name, values in fields[field].items()}
    specs = describe_tensors(tensors)
    offsets, end = plan_frame([spec.nbytes for spec in specs], alignment=ALIGNMENT)
    entries = []
    for (path, dtype, shape), offset in zip(specs, offsets, strict=True):
        field, slash, name = path.partition("/")
        entry = {"field": field, "name": name if slash else None, "dtype": DTYPE_NAMES[dtype], "shape": shape}
        entries.append({**entry, "offset": offset})
    header = {"version": VERSION, "arrays": entries, **{name: fields[name] for name in MAPS}}
    parts = partial(parts_behind_header, offsets, tensors.values(), end)
    if stamp is not None:
        header[STAMP] = stamp
        header[CHECKSUM] = fields_checksum(header, parts())
    text = json.dumps(header).encode()
    file.write(MAGIC + len(text).to_bytes(8, "little") + text)
    # Arrays begin at page boundaries, so that they can be mapped.
    file.write(bytes(round_up(file.tell()) - file.tell()))
    for part in parts():
        file.write(part)


def parts_behind_header(offsets: Iterable[int], tensors: Iterable[torch.Tensor], end: int) -> Iterator[Any]:
    """Yield the bytes after the header: each array, with padding before it and at the end."""
    position = 0
    for offset, values in zip(offsets, tensors, strict=True):
        yield bytes(offset - position)
        # Copied from a GPU one array at a time.
        data = as_bytes(values.cpu()).data
        yield data
        position = offset + data.nbytes
    yield bytes(end - position)


def fields_checksum(header: Mapping[str, Any], parts: Iterable[Any]) -> str:
    """Return the CRC-32 of a header without its checksum and of the bytes after it, in hexadecimal digits."""
    # JSON keeps the order of keys, so a header that was read produces the same bytes.
    value = zlib.crc32(json.dumps(header).encode())
    for part in parts:
        value = zlib.crc32(part, value)
    return f"{value:08x}"


def verify_graph_file(path: Path) -> str:
    """Verify a graph's file with a pass over it; return its checksum. Raises a ValueError if the file has changed."""
    with open(path, "rb", opener=regular_file) as file:
        content = graph_header(file, path).content
        # The checksum covers the header without the checksum.
        expected = content.pop(CHECKSUM, None)
        if expected is None:
            raise ValueError(f"{path} has no checksum, because an earlier release wrote it; save the graph again")
        actual = fields_checksum(content, iter(partial(file.read, BLOCK_BYTES), b""))
    if actual != expected:
        raise ValueError(f"{path} is damaged: its checksum is {actual}, and was {expected}; write it again")
    return actual


def round_up(offset: int) -> int:
    return offset + -offset % ALIGNMENT


def graph_header(file: BinaryIO, path: Path) -> Header:
    """Read and check the header of a graph's file, and move the file's position to the first array."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(len(MAGIC) + 8)
    if start[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path} is not a graph written by graphfeed; pass a file written by save()")
    length = int.from_bytes(start[len(MAGIC) :], "little")
    begin = round_up(len(start) + length)
    # Checked before the header is read.
    if begin > size:
        raise ValueError(f"{path} has {size} bytes, and its header alone should have {length}; write it again")
    try:
        content = json.loads(file.read(length))
        if content["version"] != VERSION:
            raise ValueError(f"it has version {content['version']}, and this release reads version {VERSION}")
        for name in MAPS:
            numbers = content[name]
            is_map = isinstance(numbers, dict) and all(type(number) is int for number in numbers.values())
            if numbers is not None and not is_map:
                raise ValueError(f"{name} is {numbers}")
        entries = content["arrays"]
        specs = read_specs([(path_of(entry), entry["dtype"], entry["shape"]) for entry in entries])
        if missing := set(ARRAYS[:2]).difference(spec.name for spec in specs):
            raise ValueError(f"it lacks {missing.pop()}")
        offsets, end = plan_frame([spec.nbytes for spec in specs], alignment=ALIGNMENT)
        # The layout must be that of `write_fields`, so arrays can neither overlap nor exceed the file.
        if [entry["offset"] for entry in entries] != offsets or begin + end > size:
            raise ValueError(f"its arrays must be at {offsets} and end at {begin + end}, but the file ends at {size}")
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has a header that can't be read: {error}; write it again") from error
    file.seek(begin)
    pairs = zip(specs, offsets, strict=True)
    places = {name: Place(begin + offset, shape, DTYPE_NAMES[dtype]) for (name, dtype, shape), offset in pairs}
    return Header(content, places, size)


def path_of(entry: Mapping[str, Any]) -> str:
    field, name = entry["field"], entry["name"]
    if field in ARRAYS and name is None:
        return str(field)
    if field in ATTRIBUTES and isinstance(name, str):
        return f"{field}/{name}"
    # A header from an untrusted source may name anything.
    raise ValueError(f"there is no field {field} {name}")


def save_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a checked graph to a file, replacing an old file atomically."""
    stamp = new_stamp()
    with new_file(path, most_bytes(fields), stamp=stamp) as file:
        # The stamp is in the header and is the file's modification time: they differ after any later write.
        write_fields(file, fields, stamp)


def most_bytes(fields: Mapping[str, Any]) -> int:
    """Return the maximum size of a graph's file in bytes, for a header that fits into a page."""
    return 2 * ALIGNMENT + sum(round_up(tensor.nbytes) for tensor in tensors_in(fields))


def map_fields(path: Path) -> Fields:
    """Map a graph's file. Writes to the tensors stay in this process."""
    with open(path, "rb", opener=regular_file) as file:
        header = graph_header(file, path)
        memory = map_file(file.fileno(), str(path.absolute()), header.size)
        return header.fields(tensors_of(memory, list(header.places.values())))


def is_as_saved(path: Path) -> bool:
    with open(path, "rb", opener=regular_file) as file:
        return has_stamp(file.fileno(), graph_header(file, path).content.get(STAMP))


def name_to_path(name: str) -> Path:
    """Return the path of a graph in the memory file system, or in the temporary folder without one."""
    # No slashes: the path must stay in the folder.
    if not re.fullmatch(r"[\w.+-]{1,200}", name):
        raise ValueError(f"name must be 1 to 200 letters, digits or any of '_.+-', but is {name!r}")
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"graphfeed.{name}"


def publish(name: str, fields: Mapping[str, Any]) -> Path:
    """Write a graph to shared memory. It appears under its name once it is complete."""
    path = name_to_path(name)
    try:
        # Unlike renaming, linking fails if the name exists. Other users can't read the file.
        with new_file(path, most_bytes(fields), mode=0o600, give_name=os.link) as file:
            write_fields(file, fields)
    except FileExistsError as error:
        raise FileExistsError(
            f"there is a graph {name!r} in shared memory already; choose another name, or remove {path} if the process "
            "that created it was killed"
        ) from error
    return path


def open_shared(name: str) -> Fields:
    """Map a graph in shared memory. Writes to the tensors are visible to all processes."""
    path = name_to_path(name)
    try:
        memory = MemoryFile(regular_file(path, os.O_RDWR))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no graph {name!r} in shared memory; it exists while the process that called "
            "copy_to_shared_memory keeps the returned graph"
        ) from error
    with open(memory.descriptor, "rb", closefd=False) as file:
        header = graph_header(file, path)
    shared = SharedMemory(memory, str(path), header.size)
    return header.fields(SharedBlock(shared, tuple(header.places.values())).tensors)


def unpublish(path: Path, owner: int, inode: int) -> None:
    """Remove a name if this process itself, not its parent, created it, and it still refers to the same graph."""
    if os.getpid() == owner and path.exists() and path.stat().st_ino == inode:
        path.unlink()
