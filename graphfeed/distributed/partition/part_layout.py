"""The files of a partition: which arrays there are, and the metadata that describes them, `partition.json`.

The arrays that all parts need lie beside it: the part of each node, the attributes of all nodes, since any may be a
neighbour, and as "first_edges" the whole graph's column starts, unless edges have ids of their own, which are an
attribute then. Folder `part_i` holds what part `i` owns: the in-edges of its nodes, and the rows of its features. The
identity in `partition.json` is in a file of each part, too, so that a part of another partition is noticed.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import check_count
from graphfeed.storage import Feature, FeatureKey, FeatureStore
from graphfeed.storage.datasets import check_file, load_array, write_text
from graphfeed.storage.graph import to_type_dict

FILE_NAME = "partition.json"
IDENTITY = "identity.txt"
"""The file of a part that has the identity of its partition."""
MOST_PARTS = 1 << 16
"""Each part has a folder, and takes a pass over the nodes."""
FORMAT = "graphfeed partition"
VERSION = 1
ATTRIBUTES = ("node_attributes", "edge_attributes")
KEY_LENGTHS = {
    **dict.fromkeys(("csc_indptr", "indices", "type_per_edge", "node_parts", "first_edges"), 0),
    **dict.fromkeys((*ATTRIBUTES, "edge_parts"), 1),
    "feature": 3,
}
"""What an array may be, its role: a field of the graph or another; and the length of its key there."""
Key: TypeAlias = tuple[str | None, ...]
"""The name of an attribute, the type of edge parts, or the key of a feature; otherwise empty."""


@dataclass(frozen=True)
class ArrayEntry:
    """An array of a partition, and its role."""

    path: str
    """Relative to the folder of the partition."""
    role: str
    """One of `KEY_LENGTHS`."""
    key: Key
    dtype: str
    """As torch names it. NumPy has no bfloat16, which lies in the file as int16."""
    shape: tuple[int, ...]


class PartitionMetadata(NamedTuple):
    """The content of `partition.json`."""

    num_nodes: int | dict[str, int]
    """By node type in the order of the ids, if the graph has types."""
    num_edges: int | dict[str, int]
    edge_type_to_id: dict[str, int] | None
    shared: list[ArrayEntry]
    """The arrays that all parts need."""
    parts: list[list[ArrayEntry]]
    """The arrays of each part."""
    written: int
    """The stamp of the files of the columns."""
    identity: str
    """What all parts of this partition have in common, and no other one."""

    @property
    def total_num_nodes(self) -> int:
        return sum(to_type_dict(self.num_nodes).values())

    def to_json(self) -> str:
        content = {"format": FORMAT, "version": VERSION, **self._asdict()}
        return json.dumps(content, indent=1, default=asdict) + "\n"


def check_num_parts(num_parts: int) -> None:
    check_count("num_parts", num_parts, 1)
    if num_parts > MOST_PARTS:
        raise ValueError(
            f"num_parts must be at most {MOST_PARTS:,}, for each part has a folder of its own, and is a process's, "
            f"but is {num_parts:,}; assign_nodes alone takes more, for clusters within a graph"
        )


def features_by_key(features: FeatureStore | None, domain: str | None = None) -> dict[FeatureKey, Feature]:
    if features is None:
        return {}
    keys = map(FeatureKey._make, features.keys())
    return {key: features[key] for key in keys if domain in (None, key.domain)}


def part_folder(part: int) -> str:
    return f"part_{part}"


def read_metadata(root: Path) -> PartitionMetadata:
    """Return the metadata of a partition."""
    path = root / FILE_NAME
    check_file(path, "root")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(
                f"it is {content['format']!r} of version {content['version']!r}, not {FORMAT!r} of {VERSION}"
            )
        return PartitionMetadata(
            count_of("num_nodes", content["num_nodes"]),
            count_of("num_edges", content["num_edges"]),
            None if content["edge_type_to_id"] is None else numbers_of("edge_type_to_id", content["edge_type_to_id"]),
            [parse_entry(entry) for entry in content["shared"]],
            [[parse_entry(entry) for entry in entries] for entries in content["parts"]],
            int(content["written"]),
            str(content["identity"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} can't be read: {error}; write the partition again") from error


def numbers_of(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(type(number) is int and number >= 0 for number in value.values()):
        raise ValueError(f"{name} is {value!r}, and should be numbers by type")
    return value


def count_of(name: str, value: Any) -> int | dict[str, int]:
    return value if type(value) is int and value >= 0 else numbers_of(name, value)


def parse_entry(entry: Mapping[str, Any]) -> ArrayEntry:
    """Return the description of an array, or raise if it is none."""
    parsed = ArrayEntry(entry["path"], entry["role"], tuple(entry["key"]), entry["dtype"], tuple(entry["shape"]))
    is_key = all(part is None or type(part) is str for part in parsed.key)
    is_dtype = isinstance(getattr(torch, str(parsed.dtype), None), torch.dtype)
    is_shape = len(parsed.shape) > 0 and all(type(size) is int and size >= 0 for size in parsed.shape)
    if type(parsed.path) is not str or not is_key or not is_dtype or not is_shape or parsed.role not in KEY_LENGTHS:
        raise ValueError(f"{dict(entry)} describes no array")
    if len(parsed.key) != KEY_LENGTHS[parsed.role]:
        raise ValueError(f"{dict(entry)} has a key of {len(parsed.key)} parts")
    return parsed


def write_identity(folder: Path, num_parts: int) -> str:
    # A random one, so that most likely no other partition has it.
    identity = secrets.token_hex(8)
    for part in range(num_parts):
        write_text(folder / part_folder(part) / IDENTITY, f"{identity}\n")
    return identity


def check_identity(root: Path, part: int, identity: str) -> str:
    """Return the identity of a partition, which one of its parts must have."""
    path = root / part_folder(part) / IDENTITY
    here = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if here != identity:
        raise ValueError(
            f"{path.parent} is a part of the partition {here!r}, but the files beside it are of {identity!r}; copy "
            f"part {part} and the files beside it from the same partition"
        )
    return identity


def column_files(entries: Iterable[ArrayEntry]) -> list[str]:
    return [entry.path for entry in entries if entry.role in ("csc_indptr", "indices", "type_per_edge")]


def file_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return to_numpy(torch.empty(0, dtype=dtype, device="cpu")).dtype


def to_numpy(values: torch.Tensor) -> NDArray[Any]:
    # `.npy` files have no bfloat16.
    array: NDArray[Any] = (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()
    return array


def map_entry(root: Path, entry: ArrayEntry) -> torch.Tensor:
    """Map an array; writes to it stay in this process. Nothing is unpickled."""
    path = (root / entry.path).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{root / FILE_NAME}: path {entry.path!r} leads to {path}, out of the folder; write it again")
    dtype: torch.dtype = getattr(torch, entry.dtype)
    array = load_array(path, str(root / FILE_NAME), mapped=True)
    if (array.dtype, array.shape) != (file_dtype(dtype), entry.shape):
        raise ValueError(
            f"{path} holds {array.dtype} of shape {array.shape}, but {FILE_NAME} says {entry.dtype} of shape "
            f"{entry.shape}; write the partition again"
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"{path} is in Fortran order; write the partition again")
    return torch.from_numpy(array).view(dtype)
