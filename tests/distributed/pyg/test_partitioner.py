import json
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Partitioner, assign_nodes, cut_graph, open_part
from tests import golden_pipelines
from tests.digests import assert_same
from tests.distributed import graphs
from tests.distributed.equal_pipelines import ALL
from tests.distributed.pyg_data import hetero_data, plain_data


def load(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def write(data: Any, num_parts: int, root: Path, method: Any = "hash") -> Path:
    Partitioner(data, num_parts, root, method=method).generate_partition()
    return root


def test_each_node_and_edge_is_in_the_part_of_its_map(tmp_path: Path) -> None:
    data = plain_data()
    root = write(data, 3, tmp_path / "parts")
    node_map, edge_map = load(root / "node_map.pt"), load(root / "edge_map.pt")
    assert_same(edge_map, node_map[data.edge_index[1]])
    for part in range(3):
        graph, nodes, edges = (
            load(root / f"part_{part}" / f"{name}.pt") for name in ("graph", "node_feats", "edge_feats")
        )
        assert_same(nodes["global_id"], torch.nonzero(node_map == part).flatten())
        assert_same(graph["edge_id"].sort().values, torch.nonzero(edge_map == part).flatten())
        assert_same(torch.stack([graph["row"], graph["col"]]), data.edge_index[:, graph["edge_id"]])
        assert graph["size"] == (60, 60)
        assert set(nodes["feats"]) == {"x", "y", "train_mask"}
        for name, rows in nodes["feats"].items():
            assert_same(rows, data.to_dict()[name][nodes["global_id"]])
        assert_same(nodes["time"], data.time)
        assert_same(edges["global_id"], graph["edge_id"])
        for name, rows in edges["feats"].items():
            assert_same(rows, data.to_dict()[name][graph["edge_id"]])
        order = list(zip(graph["col"].tolist(), data.time[graph["row"]].tolist(), strict=True))
        assert order == sorted(order)
    meta = json.loads((root / "META.json").read_text())
    identity = meta.pop("identity")
    assert all((root / f"part_{part}" / "identity.txt").read_text() == f"{identity}\n" for part in range(3))
    assert meta == {
        "num_parts": 3, "node_types": None, "edge_types": None, "node_offset": None, "is_hetero": False,
        "is_sorted": True, "ids": "by type", "edge_time": "edge_time",
    }  # fmt: skip


def test_ids_count_within_their_types(tmp_path: Path) -> None:
    data = hetero_data()
    root = write(data, 2, tmp_path / "parts")
    node_maps = {kind: load(root / "node_map" / f"{kind}.pt") for kind in data.node_types}
    seen = dict.fromkeys(data.edge_types, 0)
    for part in range(2):
        graph, nodes, edges = (
            load(root / f"part_{part}" / f"{name}.pt") for name in ("graph", "node_feats", "edge_feats")
        )
        for kind, own in nodes.items():
            assert_same(own["global_id"], torch.nonzero(node_maps[kind] == part).flatten())
            assert_same(own["id"], own["global_id"])
            assert_same(own["feats"]["x"], data[kind].x[own["id"]])
        for kind, own in graph.items():
            seen[kind] += len(own["edge_id"])
            assert_same(torch.stack([own["row"], own["col"]]), data[kind].edge_index[:, own["edge_id"]])
            assert own["size"] == (data[kind[0]].num_nodes, data[kind[2]].num_nodes)
            assert (node_maps[kind[2]][own["col"]] == part).all()
            assert (load(root / "edge_map" / f"{'__'.join(kind)}.pt")[own["edge_id"]] == part).all()
            assert_same(edges[kind]["feats"]["edge_attr"], data[kind].edge_attr[own["edge_id"]])
            assert_same(edges[kind]["edge_time"], data[kind].edge_time[own["edge_id"]])
    assert seen == dict.fromkeys(data.edge_types, 150)
    meta = json.loads((root / "META.json").read_text())
    assert meta["node_offset"] == [0, 50]
    assert meta["edge_types"] == [list(kind) for kind in data.edge_types]


@pytest.mark.parametrize(("make", "num_parts"), [(graphs.plain, 30), (graphs.typed, 1), (graphs.typed, 2)])
def test_own_graphs_come_back(tmp_path: Path, make: Any, num_parts: int) -> None:
    graph = make()
    root = write(graph, num_parts, tmp_path / "parts")
    found: dict[int, tuple[int, int, float]] = {}
    for part in range(num_parts):
        columns = open_part(root, part).graph.columns
        assert columns.num_nodes == graph.num_nodes
        assert_same(columns.node_attribute("time"), graph.node_attribute("time"))
        found |= edges_of(columns)
    assert found == edges_of(graph)


def with_falling_ids(graph: gf.FusedCSCSamplingGraph) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose edge ids fall in each column."""
    fields = graph.fields()
    ids = int(graph.edge_attribute(gf.ORIGINAL_EDGE_ID).max()) - graph.edge_attribute(gf.ORIGINAL_EDGE_ID)
    return gf.FusedCSCSamplingGraph(
        **{**fields, "edge_attributes": {**fields["edge_attributes"], gf.ORIGINAL_EDGE_ID: ids}}
    )


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("make", [golden_pipelines.untyped, golden_pipelines.typed])
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


IN_TIME = [name for name in ALL if "in time" in name]


@pytest.mark.parametrize("name", ["features", "LABOR, int64", "typed", *IN_TIME])
def test_mini_batches_are_those_of_the_whole_graph(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = list(gf.DataLoader(ALL[name](), 0, seed=3))
    for make in ("typed", "untyped"):
        graph = getattr(golden_pipelines, make)()
        found = PartitionedGraph(open_part(write(graph, 1, tmp_path / make), 0).graph)
        monkeypatch.setattr(golden_pipelines, make, lambda *_, found=found: found)
    assert_same(list(gf.DataLoader(ALL[name](), 0, seed=3)), wanted)


def test_times_keep_their_name(tmp_path: Path) -> None:
    data = hetero_data()
    for kind in data.edge_types:
        data[kind].time = data[kind].edge_time
        del data[kind]["edge_time"]
    columns = open_part(write(data, 1, tmp_path / "parts"), 0).graph.columns
    assert "edge_time" not in columns.edge_attributes
    assert int(columns.edge_attribute("time").sum()) == sum(int(data[kind].time.sum()) for kind in data.edge_types)
    assert "edge_time" in open_part(write(hetero_data(), 1, tmp_path / "others"), 0).graph.columns.edge_attributes


def edges_of(graph: gf.FusedCSCSamplingGraph) -> dict[Any, tuple[int, int, float]]:
    """Return the ends and the weight of each edge by type and id."""
    types = torch.zeros_like(graph.indices) if graph.type_per_edge is None else graph.type_per_edge
    ends = gf.expand_indptr(graph.csc_indptr, torch.int64)
    ids, weights = (graph.edge_attribute(name).flatten().tolist() for name in (gf.ORIGINAL_EDGE_ID, "weight"))
    keys = zip(types.tolist(), ids, strict=True)
    return dict(zip(keys, zip(graph.indices.tolist(), ends.tolist(), weights, strict=True), strict=True))


def test_the_assignment_may_be_given(tmp_path: Path) -> None:
    graph = graphs.typed()
    parts = assign_nodes(graph, 3, "ldg")
    root = write(graph, 4, tmp_path / "parts", parts)
    assert isinstance(parts, dict)
    for kind, own in parts.items():
        assert_same(load(root / "node_map" / f"{kind}.pt"), own.to(torch.int64))
    assert open_part(root, 3).graph.columns.total_num_edges == 0


def test_metis_is_the_default_and_its_absence_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[partition\]" in a clone'):
        Partitioner(graphs.plain(), 2, tmp_path / "parts").generate_partition()
    assert list(tmp_path.iterdir()) == []


def test_the_working_folder_is_refused_before_the_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="it is the working folder"):
        Partitioner(None, 2, "").generate_partition()


def test_what_is_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        write(graphs.plain(), 2, tmp_path)
    with pytest.raises(ValueError, match="num_parts must be 1 or more"):
        Partitioner(graphs.plain(), 0, tmp_path)


def test_types_that_are_no_file_names_are_refused(tmp_path: Path) -> None:
    graph = gf.from_coo({"a:../b:a": torch.tensor([[0], [0]])}, {"a": 1})
    with pytest.raises(ValueError, match=r"type 'a__\.\./b__a' can't be the name of a file"):
        write(graph, 1, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [plain_data, hetero_data])
def test_pygs_own_stores_read_it(tmp_path: Path, make: Any) -> None:
    data = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stores = import_module("torch_geometric.distributed")
    root = write(data, 2, tmp_path / "parts")
    node, edge = ("item", ("user", "likes", "item")) if make is hetero_data else (None, None)
    for part in range(2):
        features, graph = (
            stores.LocalFeatureStore.from_partition(str(root), part),
            stores.LocalGraphStore.from_partition(str(root), part),
        )
        ids = features.get_global_id(node)
        assert_same(features.get_tensor(group_name=node, attr_name="x"), (data if node is None else data[node]).x[ids])
        edge_ids = graph.get_edge_id(edge_type=edge, layout="coo")
        rows, columns = graph.get_edge_index(edge_type=edge, layout="coo")
        assert_same(torch.stack([rows, columns]), (data if edge is None else data[edge]).edge_index[:, edge_ids])
        assert (graph.get_partition_ids_from_nids(columns, node) == part).all()
        assert (graph.get_partition_ids_from_eids(edge_ids, edge) == part).all()
