"""Reading of the TFRecords of a whole graph into shared memory, under GiGL's name."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphfeed.ingest.gigl.loaded_graph_tensors import LoadedGraphTensors
from graphfeed.ingest.gigl.serialized_graph import (
    EdgeType,
    SerializedGraphMetadata,
    SerializedTFRecordInfo,
    TFDatasetOptions,
)
from graphfeed.ingest.gigl.shared_tensors import Entity, Tensors, read_entities
from graphfeed.ingest.gigl.tfrecord_data_loader import DEFAULT_OPTIONS, TFRecordDataLoader, row_bytes, schema_of
from graphfeed.ingest.tfrecord.record_stream import RecordStream
from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.records import scan_records
from graphfeed.storage.memory import available_memory, ranks_of_machine

SAMPLE_RECORDS = 4096
"""Number of records of a file from which the mean record size is estimated."""
GIB = 1 << 30


@checked
def load_torch_tensors_from_tf_record(
    tf_record_dataloader: TFRecordDataLoader,
    serialized_graph_metadata: SerializedGraphMetadata,
    should_load_tensors_in_parallel: bool,
    rank: int = 0,
    node_tf_dataset_options: TFDatasetOptions = DEFAULT_OPTIONS,
    edge_tf_dataset_options: TFDatasetOptions = DEFAULT_OPTIONS,
    weight_edge_feat_name: str | Mapping[EdgeType, str] | None = None,
    spill_folder: str | os.PathLike[str] | None = None,
) -> LoadedGraphTensors:
    """Read the share of a rank of a graph's TFRecords into shared memory.

    Each entity (edges, nodes, positive and negative labels) has a thread, which writes directly to the memory of its
    tensors, so no more memory is needed. It has no name in `/dev/shm`, so the size of `/dev/shm` does not matter and
    nothing is left there.

    The arguments are those of GiGL 0.2.0, followed by `spill_folder`. Differences to GiGL: The order of the rows does
    not depend on the options. No process is started. An error names its entity and stops the other threads. Memory is
    checked before anything is read. Integers that float32 would round are an error unless there is a `feature_dtype`.
    There is no barrier at the end.

    Args:
        tf_record_dataloader: Its rank and number of ranks determine the files to read; errors mention `rank`.
        serialized_graph_metadata: The files. A dict by type gives tensors by type.
        should_load_tensors_in_parallel: Whether the threads run at the same time, or one after another.
        weight_edge_feat_name: The edge feature to return as weights instead of a feature; or a dict by edge type.
        spill_folder: Folder for the tensors, in mapped files without a name, if they don't fit into memory.

    Raises:
        MemoryError: The tensors are larger than the free memory and there is no folder, or larger than its disk space.
        ValueError: A key has no spec, an id is not one int64, weights are not a feature of one number, or a file can't
            be read.

    Example:
        >>> nodes = SerializedTFRecordInfo("export/nodes/", [], {}, 0, entity_key="id")
        >>> edges = SerializedTFRecordInfo("export/edges/", [], {}, 0, entity_key=("src", "dst"))
        >>> metadata = SerializedGraphMetadata(nodes, edges)
        >>> loader = TFRecordDataLoader(rank=0, world_size=1)
        >>> load_torch_tensors_from_tf_record(loader, metadata, True).edge_index  # doctest: +SKIP
        tensor([[0, 1],
                [1, 2]])
    """
    del node_tf_dataset_options, edge_tf_dataset_options  # options of TensorFlow
    given = infos_by_entity(serialized_graph_metadata)
    by_type = {name: infos_by_type(info) for name, info in given.items()}
    weights = {"edge": weights_by_type(weight_edge_feat_name, by_type["edge"])}
    entities = [Entity(name, own, weights.get(name, {})) for name, own in by_type.items() if own]
    infos = [info for entity in entities for info in entity.infos.values()]
    folder = choose_place(estimate_bytes(tf_record_dataloader, infos), spill_folder)
    try:
        loaded = read_entities(entities, tf_record_dataloader, folder, should_load_tensors_in_parallel)
    except ValueError as error:
        raise ValueError(f"rank {rank}: {error}") from None
    return as_graph(loaded, {name: isinstance(info, Mapping) for name, info in given.items()})


def infos_by_entity(metadata: SerializedGraphMetadata) -> dict[str, Any]:
    """Return the infos to read, by entity."""
    # In this order the largest come first, which takes the least memory.
    given = {
        "edge": metadata.edge_entity_info,
        "node": metadata.node_entity_info,
        "positive_label": metadata.positive_label_entity_info,
        "negative_label": metadata.negative_label_entity_info,
    }
    for name, info in given.items():
        if name != "node" and any(one.label_keys for one in infos_by_type(info).values()):
            raise ValueError(f"label_keys are for nodes, but {name} has some; read them as features")
    return given


def weights_by_type(given: str | Mapping[EdgeType, str] | None, infos: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the feature with the weights of each edge type."""
    if given is None:
        return {}
    if isinstance(given, str) and len(infos) > 1:
        raise ValueError(
            f"weight_edge_feat_name must be a dict by edge type, as there are {brief(list(infos))}, but is {given!r}"
        )
    by_type = dict.fromkeys(infos, given) if isinstance(given, str) else dict(given)
    for edge_type, name in by_type.items():
        if edge_type not in infos:
            raise ValueError(f"weight_edge_feat_name has {brief(edge_type)}, but there are {brief(list(infos))}")
        if name not in infos[edge_type].feature_keys or schema_of(infos[edge_type]).given[name].count != 1:
            raise ValueError(
                f"weight_edge_feat_name is {brief(name)}, but must be one of feature_keys with one number for each "
                f"edge: {brief(list(infos[edge_type].feature_keys))}"
            )
    return by_type


def as_graph(loaded: dict[str, Tensors], is_typed: dict[str, bool]) -> LoadedGraphTensors:
    """Return the tensors of all entities as a graph."""
    fields = {
        "node_ids": ("node", "ids"),
        "node_features": ("node", "features"),
        "edge_index": ("edge", "ids"),
        "edge_features": ("edge", "features"),
        "positive_label": ("positive_label", "ids"),
        "negative_label": ("negative_label", "ids"),
        "node_labels": ("node", "labels"),
        "edge_weights": ("edge", "weights"),
        "node_quantized_features": ("node", "packed"),
        "edge_quantized_features": ("edge", "packed"),
    }
    return LoadedGraphTensors(
        **{
            name: pick_attribute(loaded.get(entity, {}), field, is_typed[entity])
            for name, (entity, field) in fields.items()
        }
    )


def infos_by_type(info: SerializedTFRecordInfo | Mapping[Any, SerializedTFRecordInfo | None] | None) -> dict[Any, Any]:
    """Return the infos that aren't None by type; a single info is under None."""
    infos = info if isinstance(info, Mapping) else {None: info}
    return {type_name: one for type_name, one in infos.items() if one is not None}


def pick_attribute(loaded: Tensors, field: str, is_typed: bool) -> Any:
    """Return the tensors of a field: a dict by type, the only tensor, or None."""
    tensors = {type_name: fields[field] for type_name, fields in loaded.items() if field in fields}
    return (tensors if is_typed else next(iter(tensors.values()))) if tensors else None


def estimate_bytes(loader: TFRecordDataLoader, infos: list[SerializedTFRecordInfo]) -> int:
    """Estimate the size of all tensors from the sizes of the files and the first records of one of them."""
    return int(1.05 * sum(row_bytes(info) * rows_of(loader.files_of(info)) for info in infos))


def rows_of(files: list[Path]) -> float:
    # Compressed records have other sizes, so compressed files are estimated separately.
    compressed = [path for path in files if path.suffix.lower() == ".gz"]
    return estimate_rows(compressed) + estimate_rows([path for path in files if path.suffix.lower() != ".gz"])


def estimate_rows(files: list[Path]) -> float:
    """Estimate the number of records in files that are either all compressed or all plain."""
    sizes = [path.stat().st_size for path in files]
    starts, lengths = torch.empty(2, SAMPLE_RECORDS, dtype=torch.int64, device="cpu")
    for path, size in zip(files, sizes, strict=True):
        if size == 0:
            continue
        try:
            with RecordStream(path) as stream:
                stream.fill()
                scanned = scan_records(stream.data, starts, lengths, 0, verify=True)
                # The compressed bytes read so far gave the bytes in the buffer.
                factor = stream.raw.tell() / max(stream.end, 1)
        except ValueError:
            continue  # the thread that reads it reports the error
        if scanned.records:
            return sum(sizes) / (scanned.stop * factor / scanned.records)
    return 0.0


def choose_place(needed: int, spill_folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder to spill tensors to, or None if memory is large enough."""
    # Memory may be infinite; the ranks of this machine share it.
    free = int(min(available_memory(), 1 << 62)) // ranks_of_machine()
    if needed <= free:
        return None
    if spill_folder is None:
        raise MemoryError(
            f"the tensors take about {needed / GIB:.2f} GiB, and {free / GIB:.2f} GiB of memory are free; give a "
            "spill_folder, or load on more machines"
        )
    disk = shutil.disk_usage(spill_folder).free
    if needed > disk:
        raise MemoryError(
            f"the tensors take about {needed / GIB:.2f} GiB; {free / GIB:.2f} GiB of memory are free, and "
            f"{disk / GIB:.2f} GiB in the spill_folder {os.fspath(spill_folder)}"
        )
    return Path(spill_folder)
