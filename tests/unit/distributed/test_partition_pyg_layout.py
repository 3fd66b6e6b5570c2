import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Partitioner, open_part
from tests.kinds.digests import assert_same
from tests.kinds.pyg_data import LIKES, hetero_data, plain_data
from tests.unit.distributed.test_partitioner import load


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    Partitioner(plain_data(), 2, tmp_path / "parts", method="hash").generate_partition()
    return tmp_path / "parts"


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    Partitioner(hetero_data(), 2, tmp_path / "parts", method="hash").generate_partition()
    return tmp_path / "parts"


def test_features_and_edges_of_a_part_have_their_ids(plain: Path) -> None:
    data = plain_data()
    for part in range(2):
        stored = open_part(plain, part)
        columns = stored.graph.columns
        ids, ends = columns.edge_attribute(gf.ORIGINAL_EDGE_ID), gf.expand_indptr(columns.csc_indptr, torch.int64)
        assert_same(torch.stack([columns.indices, ends]), data.edge_index[:, ids])
        assert_same(columns.edge_attribute("edge_weight"), data.edge_weight[ids])
        assert_same(columns.node_attribute("time"), data.time)
        assert stored.graph.num_edges == 400
        for key in (("node", None, "x"), ("node", None, "y"), ("edge", None, "edge_attr")):
            rows = data.to_dict()[key[2]][stored.books[gf.FeatureKey(*key)].ids_of(part)]
            assert_same(stored.features[key].read(), rows if rows.dim() > 1 else rows[:, None])


def through_all_types(root: Path) -> None:
    """Number nodes and edges in the files of a partition as PyG's class does, and name the folders as documented."""
    data = hetero_data()
    first_edges = {kind: 150 * number for number, kind in enumerate(data.edge_types)}
    for part in range(2):
        folder = (root / f"part_{part}").rename(root / f"part{part}")
        graph, nodes, edges = (load(folder / f"{name}.pt") for name in ("graph", "node_feats", "edge_feats"))
        for kind, own in graph.items():
            own["edge_id"] += first_edges[kind]
        for kind, own in nodes.items():
            own["id"] = own["global_id"].clone()
            own["global_id"] += {"user": 0, "item": 50}[kind]
        for kind in edges:
            edges[kind]["global_id"] = graph[kind]["edge_id"] - first_edges[kind]
        for name, content in (("graph", graph), ("node_feats", nodes), ("edge_feats", defaultdict(dict, edges))):
            torch.save(content, folder / f"{name}.pt")
    meta = json.loads((root / "META.json").read_text())
    del meta["ids"]
    (root / "META.json").write_text(json.dumps(meta))


def by_ids(columns: gf.FusedCSCSamplingGraph) -> dict[str, Any]:
    """Return the fields of a graph with columns sorted by type and id; in PyG's files they are sorted by time."""
    ends, ids = gf.expand_indptr(columns.csc_indptr, torch.int64), columns.edge_attribute(gf.ORIGINAL_EDGE_ID)
    order = torch.from_numpy(
        np.lexsort([part.numpy() for part in (ids, columns.type_per_edge, ends) if part is not None])
    )
    fields = columns.fields()
    for name in ("indices", "type_per_edge"):
        fields[name] = fields[name][order]
    fields["edge_attributes"] = {name: values[order] for name, values in fields["edge_attributes"].items()}
    return fields


def test_what_pygs_class_wrote_is_read_with_ids_by_type(typed: Path) -> None:
    before = [open_part(typed, part) for part in range(2)]
    through_all_types(typed)
    for part, expected in enumerate(before):
        found = open_part(typed, part)
        assert_same(by_ids(found.graph.columns), by_ids(expected.graph.columns))
        assert_same(found.graph.num_edges, dict.fromkeys(found.graph.columns.edge_type_to_id or {}, 150))
        keys = expected.features.keys()
        assert list(found.features.keys()) == list(keys)
        for key in keys:
            assert_same(found.features[key].read(), expected.features[key].read())
    ids = before[0].books[gf.FeatureKey("edge", LIKES, "edge_attr")].ids_of(0)
    expected_rows = hetero_data()["user", "likes", "item"].edge_attr[ids]
    assert_same(open_part(typed, 0).features["edge", LIKES, "edge_attr"].read(), expected_rows)


def test_types_lead_to_no_files_elsewhere(typed: Path) -> None:
    meta = json.loads((typed / "META.json").read_text())
    meta["node_types"][0] = "../../user"
    (typed / "META.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="out of the folder"):
        open_part(typed, 0)


def test_files_that_don_t_fit_are_noticed(plain: Path) -> None:
    with pytest.raises(ValueError, match=r"part must be in 0 \.\. 1, but is 2"):
        open_part(plain, 2)
    nodes = load(plain / "part_0" / "node_feats.pt")
    torch.save({**nodes, "global_id": nodes["global_id"] + 1}, plain / "part_0" / "node_feats.pt")
    with pytest.raises(ValueError, match="must have one row for each node of the part"):
        open_part(plain, 0)
    torch.save([1], plain / "part_0" / "node_feats.pt")
    with pytest.raises(ValueError, match="must contain a dict, but has a list"):
        open_part(plain, 0)
    contents: list[Any] = [{}, {"row": 1}, {"row": [], "col": [], "edge_id": []}]
    for content in contents:
        torch.save(content, plain / "part_1" / "graph.pt")
        with pytest.raises(ValueError, match=r"part 1 of .* can't be read"):
            open_part(plain, 1)
    (plain / "part_1" / "graph.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"graph\.pt"):
        open_part(plain, 1)
    for text in ("", "[]", '{"num_parts": 2}', '{"num_parts": "x", "is_hetero": false}'):
        (plain / "META.json").write_text(text)
        with pytest.raises(ValueError, match=r"META\.json can't be read"):
            open_part(plain, 0)
