"""Blocks as DGL would be asked to make them; a stand-in records what it is given, for DGL runs with few releases."""

import copy
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.interop import dgl as interop_dgl
from tests import pipelines
from tests.digests import assert_same


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
@pytest.mark.parametrize("name", ["original_row_node_ids", "original_column_node_ids"])
def test_ids_that_are_missing_are_named(name: str) -> None:
    batch = next(iter(pipelines.homogeneous()))
    setattr(batch.sampled_subgraphs[1], name, None)
    with pytest.raises(ValueError, match=f"Missing `{name}` in sampled subgraph"):
        batch.compute_blocks()


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
