from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Partitioner, assign_nodes, write_partition
from graphfeed.distributed.pyg.store_attributes import (
    EDGES,
    EdgeLayout,
    LocalEdgeAttr,
    LocalTensorAttr,
    group_of,
    read_info,
    type_of,
)
from tests.distributed import graphs


def test_tensors_are_named_by_fields_tuples_dicts_and_objects() -> None:
    unset = SimpleNamespace(name="UNSET")
    expected = LocalTensorAttr("paper", "x", None)
    assert LocalTensorAttr.cast("paper", "x") == expected
    assert LocalTensorAttr.cast(group_name="paper", attr_name="x") == expected
    assert LocalTensorAttr.cast(("paper", "x")) == expected
    assert LocalTensorAttr.cast({"group_name": "paper", "attr_name": "x"}) == expected
    assert LocalTensorAttr.cast(SimpleNamespace(group_name="paper", attr_name="x", index=unset)) == expected
    with pytest.raises(ValueError, match="attr_name must be a string, but is None"):
        LocalTensorAttr.cast("paper")


def test_edges_are_named_by_fields_and_objects() -> None:
    expected = LocalEdgeAttr(None, EdgeLayout.COO, True, (3, 3))
    assert LocalEdgeAttr.cast(edge_type=None, layout="coo", is_sorted=True, size=(3, 3)) == expected
    given = SimpleNamespace(edge_type=None, layout=SimpleNamespace(value="coo"), is_sorted=True, size=(3, 3))
    assert LocalEdgeAttr.cast(given) == expected
    with pytest.raises(ValueError, match="'lil' is not a valid EdgeLayout"):
        LocalEdgeAttr(None, "lil")


def test_types_have_groups() -> None:
    for kind, group in (("user", "user"), ("user:likes:item", ("user", "likes", "item")), (None, None)):
        assert group_of(kind) == group
        assert type_of(group) == kind
    assert group_of(None, edges=True) == EDGES
    assert type_of(EDGES) is None


@pytest.mark.parametrize("graph", [graphs.plain(), graphs.typed()], ids=["plain", "typed"])
def test_both_layouts_say_the_same(tmp_path: Path, graph: gf.FusedCSCSamplingGraph) -> None:
    parts = assign_nodes(graph, 3, "hash")
    write_partition(tmp_path / "own", graph, parts, num_parts=3)
    Partitioner(graph, 3, tmp_path / "pyg", method=parts).generate_partition()
    own, pyg = read_info(tmp_path / "own"), read_info(tmp_path / "pyg")
    assert own.meta == {name: pyg.meta[name] for name in own.meta}
    assert (own.layout, own.edge_parts) == (None, None)
    maps = [(own.node_parts, pyg.node_parts)]
    if isinstance(own.node_parts, dict):
        assert list(own.node_parts) == list(pyg.node_parts)
        assert list(pyg.edge_parts) == [tuple(kind.split(":")) for kind in graph.edge_types]
        maps = [(own.node_parts[kind], pyg.node_parts[kind]) for kind in own.node_parts]
    assert all(torch.equal(one.long(), other) for one, other in maps)
