"""Paths and contents of the TFRecords of a graph, under GiGL's names and with its fields."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.process import local_path, natural_order

EdgeType = tuple[str, str, str]


@checked
@dataclass(frozen=True)
class SerializedTFRecordInfo:
    """The files of one entity, the nodes or edges of a type: GiGL 0.2.0's fields in its order, and `feature_dtype`.

    Example:
        >>> SerializedTFRecordInfo("nodes/", ["f"], {}, 1, "node_id").is_node_entity
        True
    """

    tfrecord_uri_prefix: Any
    """A folder, or the beginning of paths: a path, or an object with one as its `uri`."""
    feature_keys: Sequence[str]
    """Features to read, in the order of the columns."""
    feature_spec: Mapping[str, Any]
    """A `FixedLenFeature`, or TensorFlow's, by name. Ids without a spec are one int64 each."""
    feature_dim: int
    """Number of columns of all features together."""
    entity_key: str | tuple[str, str]
    """The feature with a node's id, or those with an edge's source and destination."""
    packed_feature_key: str | None = None
    """The feature with quantized features packed into bytes, which are read unchanged."""
    packed_feature_dim: int = 0
    """Number of these bytes per record."""
    label_keys: Sequence[str] = ()
    """Features of nodes to read as labels."""
    tfrecord_uri_pattern: str = r".*-of-.*\.tfrecord(\.gz)?$"
    """Regular expression for the paths of the files, relative to the folder."""
    feature_dtype: torch.dtype | None = None
    """Dtype of the features. By default float32, and integers that it can't represent exactly are an error. A given
    dtype is always used; int64 keeps integers unchanged."""

    @property
    def is_node_entity(self) -> bool:
        """Whether these are nodes."""
        return isinstance(self.entity_key, str)

    def find_files(self) -> list[Path]:
        """Return the files, in natural order: `part-2` before `part-10`.

        Raises:
            FileNotFoundError: The folder does not exist, or no file matches.
            ValueError: The prefix is a URL of a remote storage.
        """
        prefix = local_path("tfrecord_uri_prefix", getattr(self.tfrecord_uri_prefix, "uri", self.tfrecord_uri_prefix))
        folder = prefix if os.path.isdir(prefix) else os.path.dirname(prefix) or "."
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"tfrecord_uri_prefix is {prefix!r}, but there is no folder {folder}")
        paths = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
        inside = prefix if os.path.dirname(prefix) or folder == prefix else os.path.join(folder, prefix)
        pattern = re.compile(self.tfrecord_uri_pattern)
        found = (path for path in paths if path.startswith(inside) and pattern.match(os.path.relpath(path, folder)))
        files = sorted(found, key=natural_order)
        if not files:
            raise FileNotFoundError(
                f"no file under {prefix} matches tfrecord_uri_pattern, which is {self.tfrecord_uri_pattern!r}"
            )
        return [Path(path) for path in files]


@checked
@dataclass(frozen=True)
class SerializedGraphMetadata:
    """The files of a graph, with one type of nodes and edges or by type."""

    node_entity_info: SerializedTFRecordInfo | Mapping[str, SerializedTFRecordInfo]
    edge_entity_info: SerializedTFRecordInfo | Mapping[EdgeType, SerializedTFRecordInfo]
    positive_label_entity_info: SerializedTFRecordInfo | Mapping[EdgeType, SerializedTFRecordInfo | None] | None = None
    """Pairs of an anchor and its target."""
    negative_label_entity_info: SerializedTFRecordInfo | Mapping[EdgeType, SerializedTFRecordInfo | None] | None = None


@checked
@dataclass(frozen=True)
class TFDatasetOptions:
    """TensorFlow's options for reading the files. No effect: rows are always in the order of files and records."""

    batch_size: int = 10000
    file_buffer_size: int = 100 * 1024 * 1024
    deterministic: bool = False
    use_interleave: bool = True
    num_parallel_file_reads: int = 64
    ram_budget_multiplier: float = 0.5
    log_every_n_batch: int = 1000


def share_of(files: list[Path], rank: int, world_size: int) -> list[Path]:
    """Return the files of a rank, contiguous in the list; the first ranks get one more if they don't divide evenly.

    Example:
        >>> [len(share_of([Path("a")] * 5, rank, 3)) for rank in range(3)]
        [2, 2, 1]
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in 0 .. {brief(world_size)} - 1, but is {brief(rank)}")
    each, more = divmod(len(files), world_size)
    start = rank * each + min(rank, more)
    return files[start : start + each + (rank < more)]
