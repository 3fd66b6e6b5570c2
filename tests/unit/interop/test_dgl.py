"""DGL is not needed: stand-ins have what is read of its graphs, and take what its blocks take."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

import graphfeed as gf
from graphfeed import from_dglgraph
from graphfeed.interop import dgl as interop_dgl
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

ALL = torch.tensor([-1])
Kind = tuple[str, str, str]


class Data:
    """What `g.nodes["user"]` and `g.edges["user", "likes", "item"]` return."""

    def __init__(self, data: dict[str, torch.Tensor]) -> None:
        self.data = data


class Views(dict[Any, Data]):
    """By type the data; called, the ends of the edges, as DGL's view of edges."""

    ends: Callable[..., list[torch.Tensor]]

    def __call__(self, *, etype: Kind, order: Literal["eid"]) -> list[torch.Tensor]:
        return self.ends(etype)


class DGLGraph:
    """A graph as DGL's."""

    def __init__(self, edges: dict[Kind, tuple[list[int], list[int]]], num_nodes: dict[str, int]) -> None:
        self.ntypes = list(num_nodes)
        self.canonical_etypes = list(edges)
        self.counts = num_nodes
        self.nodes = Views({kind: Data({}) for kind in num_nodes})
        self.edges = Views({kind: Data({}) for kind in edges})
        self.idtype = torch.int64
        self.edges.ends = lambda kind: [torch.tensor(part, dtype=self.idtype) for part in edges[kind]]

    def num_nodes(self, kind: str) -> int:
        return self.counts[kind]


def plain() -> DGLGraph:
    """Return four edges of one type, whose weights tell which edge they belong to."""
    g = DGLGraph({("_N", "_E", "_N"): ([3, 2, 1, 0], [0, 0, 1, 2])}, {"_N": 4})
    g.edges["_N", "_E", "_N"].data["w"] = torch.tensor([30, 20, 11, 2])
    g.nodes["_N"].data["age"] = torch.arange(4)
    return g


def typed() -> DGLGraph:
    """Return users who follow users and like items."""
    edges = {("user", "follows", "user"): ([1, 0], [0, 1]), ("user", "likes", "item"): ([1, 0, 1], [2, 0, 0])}
    g = DGLGraph(edges, {"item": 3, "user": 2})
    g.edges["user", "follows", "user"].data.update(w=torch.tensor([0.1, 0.2]))
    g.edges["user", "likes", "item"].data.update(w=torch.tensor([1.0, 2.0, 3.0]), stars=torch.ones(3))
    g.nodes["item"].data.update(x=torch.ones(3, 2), price=torch.ones(3))
    g.nodes["user"].data.update(x=torch.ones(2, 5), price=torch.zeros(2))
    return g


def test_a_plain_graph_keeps_each_edges_data_beside_it() -> None:
    """GraphBolt leaves edge data in the order of the edge list, beside edges in another."""
    graph = from_dglgraph(plain(), is_homogeneous=True)
    assert graph.num_nodes == 4
    assert graph.node_type_to_id is None
    assert_same(graph.node_attribute("age"), torch.arange(4))
    hop = graph.sample_neighbors(torch.tensor([0, 1, 2]), ALL)
    assert_same(graph.indices, torch.tensor([3, 2, 1, 0]))
    assert_same(graph.edge_attribute("w"), torch.tensor([30, 20, 11, 2]))
    assert_same(hop.original_edge_ids, torch.arange(4))


def test_edges_in_another_order_take_their_data_with_them() -> None:
    g = DGLGraph({("_N", "_E", "_N"): ([0, 1, 2, 3], [2, 1, 0, 0])}, {"_N": 4})
    g.edges["_N", "_E", "_N"].data["w"] = torch.tensor([2, 11, 20, 30])
    graph = from_dglgraph(g, is_homogeneous=True, include_original_edge_id=True)
    assert_same(graph.indices, torch.tensor([2, 3, 1, 0]))
    assert_same(graph.edge_attribute("w"), torch.tensor([20, 30, 11, 2]))
    assert_same(graph.edge_attribute(ORIGINAL_EDGE_ID), torch.tensor([2, 3, 1, 0]))


def test_types_keep_their_numbers_and_what_all_have_alike_becomes_an_attribute() -> None:
    graph = from_dglgraph(typed())
    assert graph.node_type_to_id == {"item": 0, "user": 1}
    assert graph.edge_type_to_id == {"user:follows:user": 0, "user:likes:item": 1}
    assert list(graph.node_attributes) == ["price"]
    assert list(graph.edge_attributes) == ["w"]
    assert_same(graph.node_attribute("price"), torch.tensor([1.0, 1, 1, 0, 0]))
    # By column: both edges of item 0 in their order, that of item 2, then those of the users.
    assert_same(graph.edge_attribute("w"), torch.tensor([2.0, 3.0, 1.0, 0.1, 0.2]))


def test_edge_ids_are_dgls_by_type() -> None:
    seeds = {"item": torch.tensor([0, 2]), "user": torch.tensor([1])}
    hop = from_dglgraph(typed(), include_original_edge_id=True).sample_neighbors(seeds, ALL)
    assert_same(
        hop.original_edge_ids, {"user:follows:user": torch.tensor([1]), "user:likes:item": torch.tensor([1, 2, 0])}
    )


def test_types_can_be_dropped() -> None:
    graph = from_dglgraph(typed(), is_homogeneous=True)
    assert graph.num_nodes == 5
    assert_same(graph.indices, torch.tensor([3, 4, 4, 4, 3]))
    assert_same(graph.edge_attribute("w"), torch.tensor([2.0, 3.0, 1.0, 0.1, 0.2]))


def test_ids_keep_their_dtype() -> None:
    g = typed()
    g.idtype = torch.int32
    assert from_dglgraph(g).indices.dtype == torch.int32


def test_one_type_is_a_type_unless_said_otherwise() -> None:
    assert from_dglgraph(plain()).edge_type_to_id == {"_N:_E:_N": 0}


class Block:
    """Keeps what a block is made of, and takes data where DGL's takes it."""

    def __init__(self, data: Any, num_src_nodes: Any, num_dst_nodes: Any) -> None:
        self.made_of = data
        self.counts = (num_src_nodes, num_dst_nodes)
        self.srcdata: dict[str, Any] = {}
        self.edata: dict[str, Any] = {}
        self.srcnodes = {kind: SimpleNamespace(data={}) for kind in num_src_nodes} if isinstance(data, dict) else {}
        self.edges = {kind: SimpleNamespace(data={}) for kind in data} if isinstance(data, dict) else {}


@pytest.fixture
def dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(create_block=Block, NID="_ID", EID="_ID"))


@pytest.mark.usefixtures("dgl")
def test_a_block_a_layer() -> None:
    batch = next(iter(pipelines.homogeneous()))
    before = copy.deepcopy(batch)
    made = batch.blocks
    assert_same(batch, before)
    assert len(made) == 2
    for block, subgraph in zip(made, batch.sampled_subgraphs, strict=True):
        kind, (indptr, indices, ids) = block.made_of
        assert (kind, indptr.dtype, indices.dtype) == ("csc", torch.int32, torch.int32)
        assert_same([indptr.long(), indices.long()], [subgraph.sampled_csc.indptr, subgraph.sampled_csc.indices])
        assert_same(ids, torch.arange(len(indices), dtype=torch.int32))
        assert block.counts == (len(subgraph.original_row_node_ids), len(subgraph.original_column_node_ids))
        assert block.edata == {"_ID": subgraph.original_edge_ids}
    assert made[0].srcdata == {"_ID": batch.input_nodes}
    assert made[1].srcdata == {}


@pytest.mark.usefixtures("dgl")
def test_typed_blocks() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    first, second = batch.compute_blocks()
    subgraph = batch.sampled_subgraphs[0]
    assert list(first.made_of) == [tuple(kind.split(":")) for kind in subgraph.sampled_csc]
    assert first.counts[0] == {kind: len(ids) for kind, ids in batch.input_nodes.items()}
    assert {kind: own.data["_ID"] for kind, own in first.srcnodes.items()} == batch.input_nodes
    for kind, ids in subgraph.original_edge_ids.items():
        assert first.edges[tuple(kind.split(":"))].data == {"_ID": ids}
    assert all(own.data == {} for own in second.srcnodes.values())


@pytest.mark.usefixtures("dgl")
def test_many_edges_take_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop_dgl, "INT32_MAX", 100)
    batch = next(iter(pipelines.homogeneous()))
    assert {part.dtype for block in batch.blocks for part in block.made_of[1]} == {torch.int64}


@pytest.mark.usefixtures("dgl")
def test_what_is_missing_or_no_graph_is_refused() -> None:
    def lacking(name: str) -> Any:
        batch = next(iter(pipelines.homogeneous()))
        setattr(batch.sampled_subgraphs[1], name, None)
        return batch.blocks

    edges: Any = ([1], [0])
    rows: list[Refusal] = [
        (lambda: lacking("original_row_node_ids"), ValueError, "Missing `original_row_node_ids` in sampled subgraph"),
        (lambda: lacking("original_column_node_ids"), ValueError, "Missing `original_column_node_ids` in sampled subg"),
        (lambda: from_dglgraph(edges), TypeError, r"g must be a dgl.DGLGraph, but is a tuple; from_coo takes edge li"),
    ]
    check_refused(rows)


@pytest.mark.usefixtures("dgl")
def test_without_edge_ids_or_layers() -> None:
    batch = next(iter(pipelines.homogeneous()))
    batch.sampled_subgraphs[0].original_edge_ids = None
    assert batch.blocks[0].edata == {}
    assert gf.MiniBatch(sampled_subgraphs=[]).blocks == []
    assert gf.MiniBatch().blocks is None


def test_without_dgl_there_is_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match=r"blocks needs dgl, .*: pip install dgl, .* or use sampled_subgraphs"):
        next(iter(pipelines.homogeneous())).compute_blocks()


ROOT = Path(__file__).resolve().parents[3]
WHEEL = "dgl==2.1.0"
PROGRAM = """
import graphfeed.interop.dgl
import dgl
import dgl.graphbolt as gb
import dgl.nn
import torch

theirs = dgl.graph((torch.tensor([1, 2, 3, 0]), torch.tensor([0, 0, 0, 1])))
theirs.ndata["time"] = torch.arange(4)
graph = gb.from_dglgraph(theirs, is_homogeneous=True)
assert graph.node_attributes["time"].tolist() == [0, 1, 2, 3]
items = gb.ItemSet(torch.arange(4), names="seeds")
minibatch = next(iter(gb.ItemSampler(items, batch_size=2).sample_neighbor(graph, [2, 2])))
inner, outer = dgl.nn.SAGEConv(3, 4, "mean"), dgl.nn.SAGEConv(4, 2, "mean")
first, second = minibatch.blocks
scores = outer(second, inner(first, torch.rand(len(minibatch.input_nodes), 3)))
scores.sum().backward()
print(gb.__name__, tuple(scores.shape), inner.fc_neigh.weight.grad is not None)
"""

IN_FORKS = """
import os, sys, graphfeed
for program in sys.argv[1:]:
    if os.fork() == 0:
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
"""Runs each program in a process that has imported graphfeed, and neither DGL nor what stands for it."""


def run(program: str, folder: Path, *arguments: str) -> str:
    """Return what a program prints that imports from a folder."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "DGLBACKEND": "pytorch"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_dgl_imports_beside_any_torch_and_keeps_what_it_has(tmp_path: Path) -> None:
    """A package that imports its GraphBolt as DGL does, which fails, stands for it."""
    (tmp_path / "dgl" / "graphbolt").mkdir(parents=True)
    (tmp_path / "dgl" / "__init__.py").write_text("from . import graphbolt\nNID = EID = '_ID'\n")
    (tmp_path / "dgl" / "graphbolt" / "__init__.py").write_text("import torchdata.datapipes\n")
    after, blocks, before = run(
        IN_FORKS,
        tmp_path,
        "import graphfeed.interop.dgl, dgl, dgl.graphbolt as gb; print(gb.__name__, dgl.NID)",
        "print(graphfeed.MiniBatch(sampled_subgraphs=[]).blocks, 'dgl' in sys.modules)",
        "sys.modules['torchdata.datapipes'] = sys; import dgl, graphfeed.interop.dgl; print(dgl.graphbolt.__name__)",
    ).splitlines()
    assert (after, blocks, before) == ("graphfeed _ID", "[] True", "dgl.graphbolt")


@pytest.mark.slow
@pytest.mark.thorough
def test_models_of_a_published_dgl_train_on_blocks(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path)]
    for packages in (["--no-deps", WHEEL], ["pandas", "pydantic"]):  # what else it needs is among our own
        done = subprocess.run([*install, *packages], capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"{packages[-1]} can't be installed here")
    assert run(PROGRAM, tmp_path) == "graphfeed (2, 2) True"
