"""Entities in TFRecords: their files, ids, features and labels."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed.ingest import (
    FixedLenFeature,
    LoadedGraphTensors,
    SerializedTFRecordInfo,
    TFDatasetOptions,
    TFRecordDataLoader,
)
from tests.kinds.refusals import Refusal, check_refused
from tests.unit.ingest.entities import SPEC, edges, export, nodes


def test_nodes_have_ids_and_features_in_the_order_of_the_keys(tmp_path: Path) -> None:
    columns = nodes(10)
    info = export(tmp_path / "nodes", columns, 3)
    ids, features = TFRecordDataLoader(0, 1).load_as_torch_tensors(info, TFDatasetOptions(batch_size=3))
    assert ids.dtype == torch.int64
    assert torch.equal(ids, columns["id"])
    assert features is not None
    assert features.dtype == torch.float32
    assert torch.equal(features, torch.cat([columns["n"].float().unsqueeze(1), columns["f"]], 1))


def test_edges_have_their_sources_before_their_destinations(tmp_path: Path) -> None:
    columns = edges(10)
    ids, features = TFRecordDataLoader(0, 1).load_as_torch_tensors(export(tmp_path / "edges", columns, 2))
    assert torch.equal(ids, torch.stack([columns["src"], columns["dst"]]))
    assert ids.is_contiguous()
    assert features is not None
    assert tuple(features.shape) == (10, 1)


def test_ranks_read_neighbouring_files_and_one_without_files_has_empty_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = export(tmp_path / "nodes", nodes(10), 3)
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        found.append(TFRecordDataLoader().load_as_torch_tensors(info))
    assert [len(ids) for ids, _ in found] == [4, 3, 3, 0]
    assert torch.cat([ids for ids, _ in found]).tolist() == list(range(10))
    last = found[-1][1]
    assert last is not None
    assert (tuple(last.shape), last.dtype) == ((0, 3), torch.float32)
    ids, _ = TFRecordDataLoader(1, 2).load_as_torch_tensors(export(tmp_path / "edges", edges(3), 1))
    assert (tuple(ids.shape), ids.dtype) == ((2, 0), torch.int64)


def test_without_keys_there_are_no_features(tmp_path: Path) -> None:
    info = export(tmp_path / "nodes", nodes(4), 1, feature_keys=[], feature_dim=0)
    ids, features = TFRecordDataLoader(0, 1).load_as_torch_tensors(info)
    assert (len(ids), features) == (4, None)


def test_integers_that_float32_would_round_are_refused_unless_their_dtype_is_said(tmp_path: Path) -> None:
    columns = {**nodes(4), "n": torch.tensor([0, 2**24, 2**24 + 1, 5])}
    more: dict[str, Any] = {"feature_keys": ["n"], "feature_dim": 1}
    loader = TFRecordDataLoader(0, 1)
    with pytest.raises(ValueError, match="feature 'n' holds 16777217, and float32 rounds integers beyond"):
        loader.load_as_torch_tensors(export(tmp_path / "refused", columns, 1, **more))
    for dtype in (torch.int64, torch.float64, torch.float32):
        _, features = loader.load_as_torch_tensors(
            export(tmp_path / str(dtype), columns, 1, feature_dtype=dtype, **more)
        )
        assert features is not None
        assert features.dtype == dtype
        assert torch.equal(features.flatten(), columns["n"].to(dtype))


def test_labels_are_beside_the_features(tmp_path: Path) -> None:
    columns = nodes(6)
    info = export(tmp_path / "nodes", columns, 2, label_keys=["y"])
    labels = TFRecordDataLoader(0, 1).load(info, {})["labels"]
    assert torch.equal(labels, columns["y"].float().unsqueeze(1))


def info(prefix: object) -> SerializedTFRecordInfo:
    return SerializedTFRecordInfo(prefix, [], {}, 0, "id")


def test_packed_features_are_read_as_they_are(tmp_path: Path) -> None:
    packed = torch.arange(12, dtype=torch.uint8).view(4, 3)
    settings: dict[str, Any] = {"packed_feature_key": "bits", "packed_feature_dim": 3}
    info = export(tmp_path / "nodes", {**nodes(4), "bits": packed}, 2, **settings)
    found = TFRecordDataLoader(0, 1).load(info, {})
    assert torch.equal(found["packed"], packed)
    assert found["features"].shape == (4, 3)
    with pytest.raises(ValueError, match="packed_feature_dim must be the size of 'bits', 3, not 2"):
        TFRecordDataLoader(0, 1).load(replace(info, packed_feature_dim=2), {})
    with pytest.raises(ValueError, match=r"feature_spec\['n'\] must be one string, because packed_feature_key"):
        TFRecordDataLoader(0, 1).load(replace(info, packed_feature_key="n"), {})


def test_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    paths = [tmp_path / f"part{part}" / f"{number}-of-12.tfrecord" for part in (2, 10) for number in (0, 1, 2, 10, 11)]
    for path in reversed(paths):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert SerializedTFRecordInfo(tmp_path, [], SPEC, 0, "id").find_files() == paths


def test_files_are_those_of_the_pattern_sorted_by_path(tmp_path: Path) -> None:
    wanted = ["b/0-of-2.tfrecord", "b/1-of-2.tfrecord.gz", "c/a-of-b.tfrecord"]
    for name in [*wanted, "b/_SUCCESS", "b/0-of-2.tfrecord.part", "b/plain.tfrecord", "other/0-of-1.tfrecord"]:
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).touch()
    (tmp_path / "x" / "other").rename(tmp_path / "other")
    whole, second = tmp_path / "x", tmp_path / "x" / "b" / "1-"
    for prefix in (whole, str(whole), SimpleNamespace(uri=str(whole))):
        assert info(prefix).find_files() == [tmp_path / "x" / name for name in wanted], prefix
    assert info(second).find_files() == [tmp_path / "x" / wanted[1]]


NODE_TYPE = "default_homogeneous_node_type"
EDGE_TYPE = (NODE_TYPE, "to", NODE_TYPE)
EDGES = torch.tensor([[0, 1], [1, 2]])
LABELS = torch.tensor([[0], [2]])
WRONG = torch.tensor([[1], [0]])


def graph(**more: Any) -> LoadedGraphTensors:
    fields = {
        "node_ids": torch.arange(3),
        "node_features": torch.ones(3, 2),
        "node_labels": None,
        "edge_index": EDGES,
        "edge_features": None,
        "positive_label": LABELS,
        "negative_label": WRONG,
        **more,
    }
    return LoadedGraphTensors(**fields)


def test_labels_become_edges_of_their_own_types() -> None:
    tensors: Any = graph(edge_weights=torch.ones(2), node_quantized_features=torch.ones(3, 1))
    tensors.treat_labels_as_edges("out")
    assert [list(own) for own in (tensors.edge_weights, tensors.node_quantized_features)] == [[EDGE_TYPE], [NODE_TYPE]]
    assert isinstance(tensors.edge_index, dict)
    assert list(tensors.edge_index) == [
        EDGE_TYPE,
        (NODE_TYPE, "to_gigl_positive", NODE_TYPE),
        (NODE_TYPE, "to_gigl_negative", NODE_TYPE),
    ]
    assert [value.tolist() for value in tensors.edge_index.values()] == [EDGES.tolist(), [[0], [2]], [[1], [0]]]
    assert (tensors.positive_label, tensors.negative_label, tensors.edge_features) == (None, None, None)
    assert isinstance(tensors.node_features, dict)
    assert list(tensors.node_features) == [NODE_TYPE]


def test_labels_of_a_typed_graph_are_turned_round_for_sampling_inwards() -> None:
    tensors = graph(
        node_ids={"user": torch.arange(2), "item": torch.arange(3)},
        node_features=None,
        edge_index={("user", "buys", "item"): EDGES},
        positive_label={("user", "buys", "item"): LABELS},
        negative_label=None,
    )
    tensors.treat_labels_as_edges("in")
    assert isinstance(tensors.edge_index, dict)
    assert list(tensors.edge_index) == [("user", "buys", "item"), ("item", "buys_gigl_positive", "user")]
    assert tensors.edge_index["item", "buys_gigl_positive", "user"].tolist() == [[2], [0]]
    assert tensors.node_features is None


def test_what_does_not_fit_the_files_is_refused(tmp_path: Path) -> None:
    given: Any = export(tmp_path / "nodes", nodes(4), 1)

    def load(**changes: Any) -> Any:
        return TFRecordDataLoader(0, 1).load_as_torch_tensors(replace(given, **changes))

    def spec(**changes: Any) -> Any:
        return load(feature_spec={**SPEC, **changes})

    def text(**changes: Any) -> Any:
        return load(feature_spec={"f": FixedLenFeature([], "string")}, feature_keys=["f"], feature_dim=1, **changes)

    several, other = FixedLenFeature([2], "int64"), FixedLenFeature([], "float")
    wider = {**SPEC, "f": FixedLenFeature([3], "float")}
    unlabelled, both = graph(positive_label=None), graph()
    named = "entity_key must be the name of a node's id, or those of an edge's endpoints, but"
    away: Any = "both"
    refused: list[Refusal] = [
        (lambda: load(feature_dim=4), ValueError, "feature_dim must be the total of feature_keys, 3, not 4"),
        (lambda: load(feature_keys=["zz"]), ValueError, "feature_spec must have all keys, but has no 'zz'"),
        (lambda: load(label_keys=["zz"]), ValueError, "feature_spec must have all keys, but has no 'zz'"),
        (lambda: load(entity_key="f"), ValueError, r"\['f'\] must be one int64, .* but is float of shape \(2,\)"),
        (lambda: spec(id=several), ValueError, r"feature_spec\['id'\] must be one int64"),
        (lambda: spec(id=other), ValueError, r"feature_spec\['id'\] must be one int64"),
        (lambda: load(entity_key=("id", "n", "id")), TypeError,
         r"must be a string or a tuple of 2, but is \('id', 'n', 'id'\)"),
        (lambda: load(entity_key="idx"), ValueError, "record 0, at byte 12: feature 'idx' is missing"),
        (lambda: load(feature_spec=wider, feature_dim=4), ValueError, "has 2 values, and not 3"),
        (lambda: text(), ValueError, "feature 'f' is a list of float, and not of bytes"),
        (lambda: load(entity_key=3), TypeError, "entity_key must be a string or a tuple of 2, but is 3"),
        (lambda: load(entity_key=("id", 3)), TypeError, named),
        (lambda: TFRecordDataLoader(2, 2), ValueError, "rank must be in"),
        (lambda: info(tmp_path / "zz").find_files(), FileNotFoundError,
         "no file under .* matches tfrecord_uri_pattern"),
        (lambda: info(tmp_path / "no" / "files-").find_files(), FileNotFoundError, "there is no folder"),
        (lambda: info("gs://bucket/x").find_files(), ValueError, "must be a path on this machine, but is 'gs://bucket"),
        (lambda: unlabelled.treat_labels_as_edges("in"), ValueError, "positive_label is None"),
        (lambda: both.treat_labels_as_edges(away), ValueError, "edge_dir must be 'in' or 'out', but is 'both'"),
    ]  # fmt: skip
    check_refused(refused)
    assert unlabelled.edge_index is EDGES
