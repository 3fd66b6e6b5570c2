"""The files of a partition: its arrays, and `partition.json`, the metadata that describes them.

Arrays that all parts need are next to `partition.json`: the part of each node, the attributes of all nodes (any of them
may be a neighbor), and as "first_edges" the whole graph's `csc_indptr`, unless edge ids are an attribute. Folder
`part_i` has the in-edges of the nodes of part `i`, and the rows of its features. Each part also has a file with the
identity in `partition.json`, so that mixing parts of different partitions raises an error.
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
"""File of a part that contains the identity of its partition."""
MOST_PARTS = 1 << 16
"""Upper bound of the number of parts: each has a folder, and takes a pass over the nodes."""
FORMAT = "graphfeed partition"
VERSION = 1
ATTRIBUTES = ("node_attributes", "edge_attributes")
KEY_LENGTHS = {
    **dict.fromkeys(("csc_indptr", "indices", "type_per_edge", "node_parts", "first_edges"), 0),
    **dict.fromkeys((*ATTRIBUTES, "edge_parts"), 1),
    "feature": 3,
    "encoding": 4,
}
"""The roles of arrays, fields of the graph or others, and the length of their keys."""
Key: TypeAlias = tuple[str | None, ...]
"""The name of an attribute, the type of edge parts, the key of a feature, or that of an encoding with the name of
an array; otherwise empty."""
CODING = "coding"
"""Name of an array of an encoding: the other arguments of the feature, as JSON."""


@dataclass(frozen=True)
class ArrayEntry:
    """Description of an array of a partition."""

    path: str
    """Relative to the folder of the partition."""
    role: str
    """One of `KEY_LENGTHS`."""
    key: Key
    dtype: str
    """Name of the dtype in torch. NumPy has no bfloat16, which is stored as int16."""
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
    """Stamp of the files of the columns."""
    identity: str
    """Random string shared by all parts of this partition."""

    @property
    def total_num_nodes(self) -> int:
        return sum(to_type_dict(self.num_nodes).values())

    def content(self) -> dict[str, Any]:
        """Return the content of the file, without the checksums of the arrays, which it has too."""
        entries = {"shared": [*map(asdict, self.shared)], "parts": [[*map(asdict, part)] for part in self.parts]}
        return {"format": FORMAT, "version": VERSION, **self._asdict(), **entries}


def check_num_parts(num_parts: int) -> None:
    check_count("num_parts", num_parts, 1)
    if num_parts > MOST_PARTS:
        raise ValueError(
            f"num_parts must be at most {MOST_PARTS:,}, because each part has its own folder and process, but is "
            f"{num_parts:,}; for more, such as clusters within a graph, use assign_nodes without writing"
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
            None if content["edge_type_to_id"] is None else type_counts("edge_type_to_id", content["edge_type_to_id"]),
            [parse_entry(entry) for entry in content["shared"]],
            [[parse_entry(entry) for entry in entries] for entries in content["parts"]],
            int(content["written"]),
            str(content["identity"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} can't be read: {error}; write the partition again") from error


def type_counts(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(type(number) is int and number >= 0 for number in value.values()):
        raise ValueError(f"{name} is {value!r}, but must be a dict of counts by type")
    return value


def count_of(name: str, value: Any) -> int | dict[str, int]:
    return value if type(value) is int and value >= 0 else type_counts(name, value)


def parse_entry(entry: Mapping[str, Any]) -> ArrayEntry:
    """Parse and check the description of an array."""
    parsed = ArrayEntry(entry["path"], entry["role"], tuple(entry["key"]), entry["dtype"], tuple(entry["shape"]))
    is_key = all(part is None or type(part) is str for part in parsed.key)
    is_dtype = isinstance(getattr(torch, str(parsed.dtype), None), torch.dtype)
    is_shape = len(parsed.shape) > 0 and all(type(size) is int and size >= 0 for size in parsed.shape)
    if type(parsed.path) is not str or not is_key or not is_dtype or not is_shape or parsed.role not in KEY_LENGTHS:
        raise ValueError(f"{dict(entry)} does not describe an array")
    if len(parsed.key) != KEY_LENGTHS[parsed.role]:
        raise ValueError(f"{dict(entry)} has a key with {len(parsed.key)} elements")
    return parsed


def write_identity(folder: Path, num_parts: int) -> str:
    # Random, so that other partitions almost certainly have a different one.
    identity = secrets.token_hex(8)
    for part in range(num_parts):
        write_text(folder / part_folder(part) / IDENTITY, f"{identity}\n")
    return identity


def check_identity(root: Path, part: int, identity: str) -> str:
    """Raise unless a part has the identity of its partition; return the identity."""
    path = root / part_folder(part) / IDENTITY
    here = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if here != identity:
        raise ValueError(
            f"{path.parent} is a part of the partition {here!r}, but the files next to it are of {identity!r}; copy "
            f"part {part} and the files next to it from the same partition"
        )
    return identity


def column_files(entries: Iterable[ArrayEntry]) -> list[str]:
    return [entry.path for entry in entries if entry.role in ("csc_indptr", "indices", "type_per_edge")]


def file_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return to_numpy(torch.empty(0, dtype=dtype, device="cpu")).dtype


def to_numpy(values: torch.Tensor) -> NDArray[Any]:
    # `.npy` files don't support bfloat16.
    array: NDArray[Any] = (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()
    return array


def map_entry(root: Path, entry: ArrayEntry) -> torch.Tensor:
    """Memory-map an array; writes to it stay in this process. Nothing is unpickled."""
    path = (root / entry.path).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{root / FILE_NAME}: path {entry.path!r} leads out of the folder, to {path}; write it again")
    dtype: torch.dtype = getattr(torch, entry.dtype)
    array = load_array(path, str(root / FILE_NAME), mapped=True)
    if (array.dtype, array.shape) != (file_dtype(dtype), entry.shape):
        raise ValueError(
            f"{path} has {array.dtype} of shape {array.shape}, but {FILE_NAME} specifies {entry.dtype} of shape "
            f"{entry.shape}; write the partition again"
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"{path} is in Fortran order; write the partition again")
    return torch.from_numpy(array).view(dtype)
