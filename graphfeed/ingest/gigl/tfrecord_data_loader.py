"""Reading of the TFRecords of one entity, under GiGL's name."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from threading import Event
from typing import Any

import torch
import torch.distributed

from graphfeed.ingest.gigl.serialized_graph import SerializedTFRecordInfo, TFDatasetOptions, share_of
from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, FixedLenFeature
from graphfeed.ingest.tfrecord.growing_rows import GrowingRows
from graphfeed.ingest.tfrecord.tfrecord_reader import Batch, read_batches
from graphfeed.ops.arguments import brief, check_count, checked

EXACT_INTEGERS = 1 << 24
"""Largest integer up to which float32 represents all integers."""
DEFAULT_OPTIONS = TFDatasetOptions()


class TFRecordDataLoader:
    """Reads a rank's share of the files of an entity, which are sorted by path and divided into contiguous runs.

    The first ranks get one more file if they don't divide evenly.

    Args:
        rank: By default the rank in the process group, or that of the launcher (RANK), or 0.
        world_size: Number of ranks; by default of the process group, or of the launcher (WORLD_SIZE), or 1.

    Example:
        >>> import tempfile
        >>> from graphfeed.ingest import SerializedTFRecordInfo, write_tfrecords
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tfrecords(f"{folder}/0-of-1.tfrecord", {"id": [4, 5], "x": torch.ones(2), "y": torch.zeros(2)})
        ...     spec = {name: FixedLenFeature([], torch.float32) for name in "xy"}
        ...     info = SerializedTFRecordInfo(folder, ["y", "x"], spec, feature_dim=2, entity_key="id")
        ...     TFRecordDataLoader(rank=0, world_size=1).load_as_torch_tensors(info)
        (tensor([4, 5]), tensor([[0., 1.],
                [0., 1.]]))
    """

    @checked
    def __init__(self, rank: int | None = None, world_size: int | None = None) -> None:
        in_group = torch.distributed.is_available() and torch.distributed.is_initialized()
        if rank is None:
            rank = torch.distributed.get_rank() if in_group else int(os.environ.get("RANK", "0"))
        if world_size is None:
            world_size = torch.distributed.get_world_size() if in_group else int(os.environ.get("WORLD_SIZE", "1"))
        check_count("world_size", world_size, 1)
        share_of([], rank, world_size)
        self.rank = rank
        self.world_size = int(world_size)

    def load_as_torch_tensors(
        self, serialized_tf_record_info: SerializedTFRecordInfo, tf_dataset_options: TFDatasetOptions = DEFAULT_OPTIONS
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the ids and the features of this rank's share, always in the order of files and records.

        Use `load_torch_tensors_from_tf_record` for labels and packed features, which GiGL 0.2.0 also returns here.

        Returns:
            The ids: int64, (nodes,) or (2, edges); and the features: `feature_dtype` or float32, (rows, columns), in
            the order of the keys, or None if there are no keys. A rank without files gets empty tensors.

        Raises:
            FileNotFoundError: The folder does not exist.
            ValueError: Errors of `read_tfrecords`; an id is not one int64; the dimension is not `feature_dim`; or
                float32 can't represent an integer, and there is no `feature_dtype`.
        """
        del tf_dataset_options  # they are TensorFlow's
        tensors = self.load(serialized_tf_record_info, {})
        return tensors["ids"], tensors.get("features")

    def files_of(self, info: SerializedTFRecordInfo) -> list[Path]:
        """Return this rank's files."""
        return share_of(info.find_files(), self.rank, self.world_size)

    def load(
        self,
        info: SerializedTFRecordInfo,
        descriptors: Mapping[str, int],
        weight: str | None = None,
        stopped: Event | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return "ids", and "features", "labels", "weights" and "packed" if there are any.

        Args:
            descriptors: Descriptors of the files for tensors that are stored in one.
            weight: The feature to return as "weights", which is left out of the features.
            stopped: Once set, ends the call with a CancelledError.
        """
        files = self.files_of(info)
        keys, schema = entity_keys(info), schema_of(info)
        dtype = info.feature_dtype
        widths = {key: column.count for key, column in schema.given.items()}
        ids = GrowingRows((), torch.int64, len(keys), descriptors.get("ids"))
        names = {
            "features": [key for key in info.feature_keys if key != weight],
            "weights": [] if weight is None else [weight],
            "labels": info.label_keys,
        }
        found = {
            name: GrowingRows(
                (sum(widths[key] for key in own),),
                torch.float32 if name == "labels" else dtype or torch.float32,
                1,
                descriptors.get(name),
            )
            for name, own in names.items()
            if own
        }
        packed, bytes_key = None, info.packed_feature_key
        if bytes_key is not None:
            packed = GrowingRows((info.packed_feature_dim,), torch.uint8, 1, descriptors.get("packed"))

        def keep(batch: Batch) -> None:
            if stopped is not None and stopped.is_set():
                raise CancelledError
            ids.append([batch[key].reshape(-1) for key in keys])
            for name, rows in found.items():
                rows.append(
                    [concat_shards(batch, names[name], rows.dtype, is_checked=name == "labels" or dtype is None)]
                )
            if packed is not None and bytes_key is not None:
                if batch[bytes_key].shape[1:] != packed.shape:
                    raise ValueError(
                        f"packed_feature_dim must be the size of {bytes_key!r}, {batch[bytes_key].shape[-1]}, not "
                        f"{info.packed_feature_dim}"
                    )
                packed.append([batch[bytes_key]])

        read_batches(files, schema, keep)
        tensors = {"ids": ids.finish()} | {name: rows.finish() for name, rows in found.items()}
        if weight is not None:
            tensors["weights"] = tensors["weights"].squeeze(1)
        return tensors if packed is None else {**tensors, "packed": packed.finish()}


def entity_keys(info: SerializedTFRecordInfo) -> list[str]:
    """Return the name of a node's id, or the two names of an edge's ids."""
    given: Any = info.entity_key
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Sequence) or not all(isinstance(key, str) for key in given):
        raise TypeError(
            f"entity_key must be the name of a node's id, or those of an edge's endpoints, but is {brief(given)}"
        )
    if len(given) not in (1, 2):
        raise ValueError(f"entity_key must be one name or two, but is {brief(given)}")
    return list(given)


def schema_of(info: SerializedTFRecordInfo) -> ExampleSchema:
    """Return the schema of the records."""
    keys = entity_keys(info)
    one_id = FixedLenFeature([], torch.int64)
    wanted = dict.fromkeys([*keys, *info.feature_keys, *info.label_keys])
    missing = [key for key in wanted if key not in info.feature_spec and key not in keys]
    if missing:
        raise ValueError(f"feature_spec must have all keys, but has no {missing[0]!r}")
    specs = {key: info.feature_spec.get(key, one_id) for key in wanted}
    if (packed := info.packed_feature_key) is not None:
        specs[packed] = info.feature_spec.get(packed, FixedLenFeature([], "string"))
    schema = ExampleSchema(specs)
    if packed is not None and (schema.given[packed].kind, schema.given[packed].shape) != ("bytes", ()):
        raise ValueError(f"feature_spec[{packed!r}] must be one string, because packed_feature_key names it as bytes")
    for key in keys:
        column = schema.given[key]
        if column.kind != "int64" or column.count != 1:
            raise ValueError(
                f"feature_spec[{key!r}] must be one int64, because entity_key names it as an id, but is {column.kind} "
                f"of shape {column.shape}"
            )
    columns = sum(schema.given[key].count for key in info.feature_keys)
    if columns != info.feature_dim:
        raise ValueError(f"feature_dim must be the total of feature_keys, {columns}, not {info.feature_dim}")
    return schema


def row_bytes(info: SerializedTFRecordInfo) -> int:
    given = schema_of(info).given
    of_labels = sum(given[key].count for key in info.label_keys)
    return (
        8 * len(entity_keys(info))
        + info.feature_dim * (info.feature_dtype or torch.float32).itemsize
        + 4 * of_labels
        + info.packed_feature_dim
    )


def concat_shards(batch: Batch, names: Sequence[str], dtype: torch.dtype, is_checked: bool) -> torch.Tensor:
    """Concatenate features as columns of one dtype."""
    parts = []
    for name in names:
        values = batch[name].unsqueeze(-1).flatten(1)
        if values.dtype == torch.uint8:
            raise ValueError(
                f"feature {name!r} holds bytes, which can't be columns of features; leave it out of the keys"
            )
        if is_checked and values.dtype == torch.int64 and values.numel():
            low, high = torch.aminmax(values)
            if low < -EXACT_INTEGERS or high > EXACT_INTEGERS:
                wrong = int(low if low < -EXACT_INTEGERS else high)
                raise ValueError(
                    f"feature {name!r} holds {wrong}, and float32 rounds integers beyond 2**24; give feature_dtype: "
                    "torch.int64 or torch.float64 keep it, torch.float32 rounds it"
                )
        parts.append(values.to(dtype))
    return torch.cat(parts, dim=1)
