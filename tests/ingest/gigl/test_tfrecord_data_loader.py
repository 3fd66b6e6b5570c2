"""Entities of TFRecords: their files, ids, features and labels."""

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
from graphfeed.ingest.gigl.loaded_graph_tensors import EDGE_TYPE, NODE_TYPE
from graphfeed.ingest.gigl.serialized_graph import share_of
from tests.ingest.entities import SPEC, edges, export, nodes


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


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"feature_dim": 4}, "feature_dim must be that of the features of feature_keys, 3, not 4"),
        ({"feature_keys": ["zz"]}, "feature_spec must have all keys, but has no 'zz'"),
        ({"label_keys": ["zz"]}, "feature_spec must have all keys, but has no 'zz'"),
        ({"entity_key": "f"}, r"\['f'\] must be one int64, .* but is float of shape \(2,\)"),
        ({"feature_spec": {**SPEC, "id": FixedLenFeature([2], "int64")}}, r"feature_spec\['id'\] must be one int64"),
        ({"feature_spec": {**SPEC, "id": FixedLenFeature([], "float")}}, r"feature_spec\['id'\] must be one int64"),
        ({"entity_key": ("id", "n", "id")}, r"entity_key must be one name or two, but is \('id', 'n', 'id'\)"),
        ({"entity_key": "idx"}, "record 0, at byte 12: feature 'idx' is missing"),
        ({"feature_spec": {**SPEC, "f": FixedLenFeature([3], "float")}, "feature_dim": 4}, "has 2 values, and not 3"),
        (
            {"feature_spec": {"f": FixedLenFeature([], "string")}, "feature_keys": ["f"], "feature_dim": 1},
            "feature 'f' is a list of float, and not of bytes",
        ),
    ],
)
def test_what_does_not_fit_the_files_is_refused(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    spec = more.pop("feature_spec", SPEC)
    info = export(tmp_path / "nodes", nodes(4), 1, **more)
    object.__setattr__(info, "feature_spec", spec)
    with pytest.raises(ValueError, match=text):
        TFRecordDataLoader(0, 1).load_as_torch_tensors(info)


@pytest.mark.parametrize("key", [3, None, ("id", 3)])
def test_a_key_that_is_no_name_is_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(TypeError, match="entity_key must be the name of a node's id, or those of an edge's ends, but"):
        TFRecordDataLoader(0, 1).load_as_torch_tensors(export(tmp_path / "nodes", nodes(4), 1, entity_key=key))


def test_a_rank_beyond_the_others_is_refused() -> None:
    with pytest.raises(ValueError, match="rank must lie in"):
        TFRecordDataLoader(2, 2)


def info(prefix: object) -> SerializedTFRecordInfo:
    return SerializedTFRecordInfo(prefix, [], {}, 0, "id")


@pytest.mark.parametrize("as_uri", [str, lambda path: path, lambda path: SimpleNamespace(uri=str(path))])
def test_files_are_those_of_the_pattern_sorted_by_path(tmp_path: Path, as_uri: object) -> None:
    assert callable(as_uri)
    wanted = ["b/0-of-2.tfrecord", "b/1-of-2.tfrecord.gz", "c/a-of-b.tfrecord"]
    for name in [*wanted, "b/_SUCCESS", "b/0-of-2.tfrecord.part", "b/plain.tfrecord", "other/0-of-1.tfrecord"]:
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).touch()
    (tmp_path / "x" / "other").rename(tmp_path / "other")
    assert info(as_uri(tmp_path / "x")).find_files() == [tmp_path / "x" / name for name in wanted]
    assert info(as_uri(tmp_path / "x" / "b" / "1-")).find_files() == [tmp_path / "x" / wanted[1]]


def test_a_pattern_that_no_file_matches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.tfrecord").touch()
    with pytest.raises(FileNotFoundError, match=f"no file under {tmp_path} matches tfrecord_uri_pattern, which is"):
        info(tmp_path).find_files()


def test_a_folder_that_is_not_there_and_a_remote_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        info(tmp_path / "nowhere" / "files-").find_files()
    with pytest.raises(ValueError, match="must be a path on this machine, but is 'gs://bucket/x'"):
        info("gs://bucket/x").find_files()


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_each_file_is_one_ranks_and_the_order_stays(count: int) -> None:
    files = [Path(str(number)) for number in range(count)]
    shares = [share_of(files, rank, 3) for rank in range(3)]
    assert [file for share in shares for file in share] == files
    assert sorted(map(len, shares), reverse=True) == list(map(len, shares))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank must lie in 0 \.\. 3 - 1, but is 3"):
        share_of([], 3, 3)


EDGES = torch.tensor([[0, 1], [1, 2]])
LABELS = torch.tensor([[0], [2]])
WRONG = torch.tensor([[1], [0]])


def graph(**more: Any) -> LoadedGraphTensors:
    fields = {
        "node_ids": torch.arange(3),
        "node_features": torch.ones(3, 2),
        "edge_index": EDGES,
        "edge_features": None,
        "positive_label": LABELS,
        "negative_label": WRONG,
        **more,
    }
    return LoadedGraphTensors(**fields)


def test_labels_become_edges_of_their_own_types() -> None:
    tensors = graph()
    tensors.treat_labels_as_edges("out")
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


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    tensors = graph(positive_label=None)
    with pytest.raises(ValueError, match="positive_label is None"):
        tensors.treat_labels_as_edges("in")
    with pytest.raises(ValueError, match="edge_dir must be 'in' or 'out', but is 'both'"):
        graph().treat_labels_as_edges("both")  # type: ignore[arg-type]
    assert tensors.edge_index is EDGES
