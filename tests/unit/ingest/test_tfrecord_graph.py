"""Graphs in TFRecords, read by a thread for each entity, into memory or to disk."""

import inspect
import resource
import threading
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.ingest import (
    LoadedGraphTensors,
    SerializedGraphMetadata,
    SerializedTFRecordInfo,
    TFRecordDataLoader,
    write_tfrecords,
)
from graphfeed.ingest import load_torch_tensors_from_tf_record as load
from graphfeed.testing import limits
from tests.kinds.refusals import check_refused
from tests.stand_ins.scripts import run
from tests.unit.ingest.entities import edges, export, nodes, shared_files

SETTINGS: dict[str, Any] = inspect.unwrap(load).__globals__
LOADER = TFRecordDataLoader(0, 1)
BUYS = ("user", "buys", "item")


@pytest.fixture
def metadata(tmp_path: Path) -> SerializedGraphMetadata:
    """A graph with two types of nodes and one of edges, and with positive labels."""
    return SerializedGraphMetadata(
        {
            "user": export(tmp_path / "user", nodes(5), 2, label_keys=["y"]),
            "item": export(tmp_path / "item", nodes(3, 9), 1),
        },
        {BUYS: export(tmp_path / "buys", edges(8), 3)},
        {BUYS: export(tmp_path / "positive", edges(2), 1, feature_keys=[], feature_dim=0)},
        {BUYS: None},
    )


def test_a_typed_graph_comes_by_type_in_shared_memory(metadata: SerializedGraphMetadata) -> None:
    before = len(shared_files())
    graph = load(LOADER, metadata, True)
    assert isinstance(graph.node_ids, dict)
    assert {kind: ids.tolist() for kind, ids in graph.node_ids.items()} == {"user": [*range(5)], "item": [9, 10, 11]}
    assert isinstance(graph.node_features, dict)
    assert graph.node_features["item"][:, 0].tolist() == [27, 30, 33]
    assert isinstance(graph.node_labels, dict)
    assert graph.node_labels["user"].flatten().tolist() == [0, 1, 2, 3, 4]
    assert isinstance(graph.edge_index, dict)
    assert torch.equal(graph.edge_index[BUYS], torch.stack([edges(8)["src"], edges(8)["dst"]]))
    assert isinstance(graph.positive_label, dict)
    assert graph.positive_label[BUYS].tolist() == [[0, 1], [0, 7]]
    assert graph.negative_label is None
    assert graph.edge_index[BUYS].is_shared()  # type: ignore[no-untyped-call]
    del graph
    assert len(shared_files()) <= before


def test_weights_and_packed_features_come_by_type_too(tmp_path: Path, metadata: SerializedGraphMetadata) -> None:
    bits = torch.arange(6, dtype=torch.uint8).view(3, 2)
    settings: dict[str, Any] = {"packed_feature_key": "bits", "packed_feature_dim": 2}
    item = export(tmp_path / "packed", {**nodes(3, 9), "bits": bits}, 1, **settings)
    infos: Any = metadata.node_entity_info
    metadata = replace(metadata, node_entity_info={**infos, "item": item})
    graph: Any = load(LOADER, metadata, True, weight_edge_feat_name={BUYS: "n"})
    assert graph.edge_weights[BUYS].tolist() == [10.0 * place for place in range(8)]
    assert graph.edge_features is None
    assert list(graph.node_quantized_features) == ["item"]
    assert torch.equal(graph.node_quantized_features["item"], bits)


def test_weights_are_one_of_the_features_and_stay_none(tmp_path: Path) -> None:
    columns = {**edges(6), "f": torch.rand(6, 2)}
    info = export(tmp_path / "edges", columns, 2, feature_keys=["f", "n"], feature_dim=3)
    metadata = SerializedGraphMetadata(export(tmp_path / "nodes", nodes(4), 1), info)
    graph: Any = load(LOADER, metadata, False, 0, weight_edge_feat_name="n")
    assert graph.edge_weights.tolist() == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert torch.equal(graph.edge_features, columns["f"])
    check_refused([
        (lambda: load(LOADER, metadata, False, weight_edge_feat_name="f"), ValueError, "is 'f', but must be one"),
        (lambda: load(LOADER, metadata, False, weight_edge_feat_name="w"), ValueError, "is 'w', but must be one"),
        (
            lambda: load(LOADER, metadata, False, weight_edge_feat_name={BUYS: "n"}), ValueError,
            r"weight_edge_feat_name has \('user', 'buys', 'item'\), but there are \[None\]",
        ),
        (
            lambda: load(
                LOADER, replace(metadata, edge_entity_info={BUYS: info, ("a", "b", "c"): info}), False,
                weight_edge_feat_name="n",
            ), ValueError, "weight_edge_feat_name must be a dict by edge type",
        ),
    ])  # fmt: skip


def test_the_order_of_parameters_is_gigls() -> None:
    graph = "node_ids node_features node_labels edge_index edge_features positive_label negative_label edge_weights"
    orders: dict[Any, str] = {
        load: "tf_record_dataloader serialized_graph_metadata should_load_tensors_in_parallel rank "
        "node_tf_dataset_options edge_tf_dataset_options weight_edge_feat_name",
        LoadedGraphTensors: f"{graph} node_quantized_features edge_quantized_features",
        SerializedTFRecordInfo: "tfrecord_uri_prefix feature_keys feature_spec feature_dim entity_key "
        "packed_feature_key packed_feature_dim label_keys tfrecord_uri_pattern",
    }
    for value, order in orders.items():
        assert " ".join(signature(value).parameters).startswith(order)


@limits(memory_bytes=10)
def test_tensors_that_memory_is_too_small_for_lie_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    metadata = SerializedGraphMetadata(
        export(tmp_path / "nodes", nodes(3000), 1), export(tmp_path / "edges", edges(4000), 1)
    )
    graph = load(LOADER, metadata, False, spill_folder=folder)
    assert isinstance(graph.edge_index, torch.Tensor)
    assert torch.equal(graph.edge_index, torch.stack([edges(4000)["src"], edges(4000)["dst"]]))
    assert str(folder) in Path("/proc/self/maps").read_text()
    assert list(folder.iterdir()) == []


def test_a_graph_of_one_type_comes_as_tensors(tmp_path: Path) -> None:
    labels = {name: export(tmp_path / name, edges(2), 1, feature_keys=[], feature_dim=0) for name in ("good", "bad")}
    metadata = SerializedGraphMetadata(
        export(tmp_path / "nodes", nodes(4), 1), export(tmp_path / "edges", edges(6), 2), labels["good"], labels["bad"]
    )
    graph = load(LOADER, metadata, False)
    assert isinstance(graph.edge_index, torch.Tensor)
    assert tuple(graph.edge_index.shape) == (2, 6)
    assert isinstance(graph.negative_label, torch.Tensor)
    assert graph.node_labels is None


def test_without_memory_the_error_names_the_spill_folder(
    metadata: SerializedGraphMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "available_memory", lambda: 100)
    with pytest.raises(
        MemoryError, match=r"take about 0\.00 GiB, and 0\.00 GiB of memory are free; give a spill_folder"
    ):
        load(LOADER, metadata, True)


def test_labels_of_edges_or_without_a_spec_are_refused(tmp_path: Path) -> None:
    of_edges = export(tmp_path / "edges", edges(2), 1, label_keys=["n"])
    unknown = export(tmp_path / "nodes", nodes(2), 1, label_keys=["zz"])
    plain = export(tmp_path / "plain", edges(2), 1)
    check_refused([
        (lambda: load(LOADER, SerializedGraphMetadata(of_edges, of_edges), True), ValueError,
         "label_keys are for nodes, but edge has some"),
        (lambda: load(LOADER, SerializedGraphMetadata(unknown, plain), True), ValueError,
         "feature_spec must have all keys, but has no 'zz'"),
    ])  # fmt: skip


def test_empty_exports_give_empty_tensors(tmp_path: Path) -> None:
    metadata = SerializedGraphMetadata(export(tmp_path / "nodes", nodes(0), 1), export(tmp_path / "edges", edges(0), 1))
    graph = load(LOADER, metadata, True)
    assert isinstance(graph.edge_index, torch.Tensor)
    assert tuple(graph.edge_index.shape) == (2, 0)


MEMORY = """
import re, sys
from pathlib import Path
import torch
import graphfeed as gf

path, rows = sys.argv[1], 1600
gf.read_tfrecords(path + "/0-of-9.tfrecord")  # kernels and imports are not counted


def peak():  # unlike ru_maxrss, not that of the parent before it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024


before = peak()
found = gf.read_tfrecords([f"{path}/{number}-of-9.tfrecord" for number in range(1, 9)])
assert tuple(found["w"].shape) == (8 * rows, 2000)
print((peak() - before) / sum(values.nbytes for values in found.values()))
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_reading_takes_the_memory_of_the_result(tmp_path: Path) -> None:
    for number in range(9):
        rows = 16 if number == 0 else 1600
        write_tfrecords(tmp_path / f"{number}-of-9.tfrecord", {"id": torch.arange(rows), "w": torch.rand(rows, 2000)})
    done = run("-c", MEMORY, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout) < 1.2


def test_a_full_disk_is_an_error_that_names_the_entity(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    metadata = SerializedGraphMetadata(export(tmp_path / "nodes", nodes(3), 1), export(tmp_path / "edges", edges(4), 1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(ValueError, match=r"rank 0: loading failed for \w+: .*File too large"):
            load(LOADER, metadata, True, spill_folder=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_error_names_its_entity(tmp_path: Path) -> None:
    metadata = SerializedGraphMetadata(export(tmp_path / "node", nodes(3), 1), export(tmp_path / "edge", edges(3), 1))
    (tmp_path / "edge" / "00-of-01.tfrecord").write_bytes(b"no record" * 9)
    for at_once in (True, False):
        with pytest.raises(ValueError, match=r"loading failed for edge: .*record 0, at byte"):
            load(LOADER, metadata, at_once)


def test_an_error_ends_the_reading_of_the_other_entities(tmp_path: Path) -> None:
    class Waiting(TFRecordDataLoader):
        def load(self, info: SerializedTFRecordInfo, *given: Any) -> dict[str, torch.Tensor]:
            if info is metadata.node_entity_info:
                begun.set()
                ended.append(given[-1].wait(60))
            assert begun.wait(60)
            return super().load(info, *given)

    begun = threading.Event()
    ended: list[bool] = []
    metadata = SerializedGraphMetadata(export(tmp_path / "node", nodes(3), 1), export(tmp_path / "edge", edges(3), 1))
    (tmp_path / "edge" / "00-of-01.tfrecord").write_bytes(b"no record" * 9)
    with pytest.raises(ValueError, match="loading failed for edge"):
        load(Waiting(0, 1), metadata, True)
    assert ended == [True]
