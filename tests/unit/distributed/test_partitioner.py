"""Tests of writing PyG's layout, from all kinds of sources."""

import json
import sys
import warnings
from collections import Counter
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Partitioner, assign_nodes, cut_graph, open_part
from tests.kinds import golden_pipelines
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.digests import assert_same
from tests.kinds.equal_pipelines import ALL, GOLDEN, made
from tests.kinds.pyg_data import hetero_data, plain_data
from tests.kinds.refusals import check_all_refused, check_refused


def load(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def write(data: Any, num_parts: int, root: Path, method: Any = "hash") -> Path:
    Partitioner(data, num_parts, root, method=method).generate_partition()
    return root


def test_a_data_set_has_features_too_and_what_is_no_row_of_an_edge_is_left_out(tmp_path: Path) -> None:
    rows = {("node", None, "feat"): torch.arange(100)[:, None], ("edge", None, "row"): torch.arange(700)[:, None]}
    store = gf.BasicFeatureStore({key: gf.TorchBasedFeature(values) for key, values in rows.items()})
    data = SimpleNamespace(graph=graphs.plain(), feature=store)
    found = open_part(write(data, 1, tmp_path / "data set"), 0).features
    assert_same({key: found.read(*key) for key in rows}, rows)
    plain, hetero = plain_data(), hetero_data()
    for own in (plain, hetero["user", "likes", "item"]):
        own.edge_label_index = own.edge_index.clone()
    for name, own in (("plain", plain), ("hetero", hetero)):
        part = open_part(write(own, 1, tmp_path / name), 0)
        assert not [key for key in part.features.keys() if "label" in key[2]]  # noqa: SIM118
        assert not [name for name in part.graph.columns.edge_attributes if "label" in name]


def test_in_edges_are_in_the_order_of_their_times_and_the_metadata_say_so(tmp_path: Path) -> None:
    data = plain_data()
    root = write(data, 3, tmp_path / "parts")
    for part in range(3):
        graph = load(root / f"part_{part}" / "graph.pt")
        order = list(zip(graph["col"].tolist(), data.time[graph["row"]].tolist(), strict=True))
        assert order == sorted(order)
    meta = json.loads((root / "META.json").read_text())
    identity = meta.pop("identity")
    assert all((root / f"part_{part}" / "identity.txt").read_text() == f"{identity}\n" for part in range(3))
    assert meta == {
        "num_parts": 3, "node_types": None, "edge_types": None, "node_offset": None, "is_hetero": False,
        "is_sorted": True, "ids": "by type", "edge_time": "edge_time",
    }  # fmt: skip


def with_falling_ids(graph: gf.FusedCSCSamplingGraph) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose edge ids decrease in each column."""
    fields, ids = graph.fields(), graph.edge_attribute(gf.ORIGINAL_EDGE_ID)
    attributes = fields["edge_attributes"] | {gf.ORIGINAL_EDGE_ID: int(ids.max()) - ids}
    return gf.FusedCSCSamplingGraph(**{**fields, "edge_attributes": attributes})


@pytest.mark.parametrize(
    ("make", "falling"),
    [*product((golden_pipelines.untyped, golden_pipelines.typed), (False, True)), (graphs.typed, False)],
)
def test_in_edges_with_times_keep_their_order(tmp_path: Path, make: Any, falling: bool) -> None:
    graph = with_falling_ids(make()) if falling else make()
    assignment = assign_nodes(graph, 3, "hash")
    root = write(graph, 3, tmp_path / "parts", assignment)
    for part in range(3):
        found, wanted = open_part(root, part).graph.columns, cut_graph(graph, assignment, part).columns
        assert set(found.edge_attributes) == set(wanted.edge_attributes)
        for name, values in wanted.edge_attributes.items():
            assert_same(found.edge_attribute(name), values)
        assert_same(found.type_per_edge, wanted.type_per_edge)
        assert_same((found.csc_indptr, found.indices), (wanted.csc_indptr, wanted.indices))
        edges = load(root / f"part_{part}" / "graph.pt")
        assert all(("order" in own) == falling for own in ([edges] if "row" in edges else edges.values()))


def test_mini_batches_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    typed, untyped = (
        PartitionedGraph(open_part(write(getattr(golden_pipelines, name)(), 1, tmp_path / name), 0).graph)
        for name in ("typed", "untyped")
    )
    parts = GOLDEN._replace(untyped=lambda *_: untyped, typed=lambda: typed)
    names = ["features", "LABOR, int64", "typed", *[name for name in ALL if "in time" in name]]
    assert_same(made(parts, names, 3), made(GOLDEN, names, 3))


def test_times_keep_their_name_and_the_assignment_may_be_given(tmp_path: Path) -> None:
    data = hetero_data()
    for kind in data.edge_types:
        data[kind].time = data[kind].edge_time
        del data[kind]["edge_time"]
    columns = open_part(write(data, 1, tmp_path / "parts"), 0).graph.columns
    assert "edge_time" not in columns.edge_attributes
    assert int(columns.edge_attribute("time").sum()) == sum(int(data[kind].time.sum()) for kind in data.edge_types)
    graph = graphs.typed()
    parts: Any = assign_nodes(graph, 3, "ldg")
    root = write(graph, 4, tmp_path / "assigned", parts)
    for kind, own in parts.items():
        assert_same(load(root / "node_map" / f"{kind}.pt"), own.to(torch.int64))
    assert open_part(root, 3).graph.columns.total_num_edges == 0


def test_what_can_t_be_written_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    plain, odd = graphs.plain(), gf.from_coo({"a:../b:a": torch.tensor([[0], [0]])}, {"a": 1})
    full, empty, folder = (tmp_path / name for name in ("full", "empty", "parts"))
    full.mkdir()
    empty.mkdir()
    (full / "mine").write_text("keep")
    monkeypatch.chdir(empty)
    by_metis = Partitioner(plain, 2, folder)  # by default
    data: Any = plain_data()
    data.edge_index = None
    others = [data, None, 3, SimpleNamespace(edge_index=None, num_nodes=3), torch.zeros(2, 3)]
    words = "data must be a FusedCSCSamplingGraph, a data set with one, or PyG's"
    check_all_refused(lambda other: write(other, 2, folder), others, words, TypeError)
    check_refused([
        (by_metis.generate_partition, ImportError, r'pip install "graphfeed\[partition\]"'),
        (lambda: write(None, 2, Path()), OSError, "it is the working folder"),
        (lambda: write(plain, 2, full), FileExistsError, "exists and is not an empty folder"),
        (lambda: Partitioner(plain, 0, folder), ValueError, "num_parts must be 1 or more"),
        (lambda: write(odd, 1, folder), ValueError, r"type 'a__\.\./b__a' can't be the name of a file"),
    ])  # fmt: skip
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "full", "mine"]


@pytest.mark.parametrize("make", [plain_data, hetero_data])
def test_pygs_own_stores_read_it(tmp_path: Path, make: Any) -> None:
    data, seen = make(), Counter[Any]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stores = import_module("torch_geometric.distributed")
    root = str(write(data, 2, tmp_path / "parts"))
    for part in range(2):
        features = stores.LocalFeatureStore.from_partition(root, part)
        for attr in features.get_all_tensor_attrs():
            ids = features.get_global_id(attr.group_name)
            whole = (data if make is plain_data else data[attr.group_name]).to_dict()[attr.attr_name]
            assert_same(features.get_tensor(attr), whole if attr.attr_name == "time" else whole[ids])
            seen[attr.attr_name] += len(ids)
        graph = stores.LocalGraphStore.from_partition(root, part)
        for attr in graph.get_all_edge_attrs():
            index, ids = torch.stack(list(graph.get_edge_index(attr))), graph.get_edge_id(attr)
            assert_same(index, (data if make is plain_data else data[attr.edge_type]).edge_index[:, ids])
            assert (graph.get_partition_ids_from_nids(index[1], attr.edge_type and attr.edge_type[2]) == part).all()
            assert (graph.get_partition_ids_from_eids(ids, attr.edge_type) == part).all()
            ends = (data, data) if make is plain_data else (data[attr.edge_type[0]], data[attr.edge_type[2]])
            assert attr.size == tuple(end.num_nodes for end in ends)
            seen[attr.edge_type] += len(ids)
    if make is plain_data:
        assert seen == {"x": 60, "y": 60, "train_mask": 60, "time": 60, "edge_attr": 400, "edge_weight": 400, None: 400}
    else:
        assert seen == {"x": 70, "y": 50, "edge_attr": 450, "edge_time": 450, **dict.fromkeys(data.edge_types, 150)}
        assert graph.meta["node_offset"] == [0, 50]
        assert graph.meta["edge_types"] == list(map(list, data.edge_types))
