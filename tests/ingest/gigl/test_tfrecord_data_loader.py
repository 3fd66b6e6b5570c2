from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.ingest import FixedLenFeature, TFDatasetOptions, TFRecordDataLoader
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
